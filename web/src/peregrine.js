// What a page imports: models in workers of their own, so that the page stays free.

import {cache} from "./cache.js";
import {PeregrineError} from "./errors.js";
import {completions} from "./openai.js";
import {support} from "./support.js";

export {PeregrineError};

/** @typedef {string | URL | File | Blob | (string | URL | File | Blob)[]} Source a .gguf by its link (of a split one, of the first part) or as a file, or all parts of a split one */
/** @typedef {{stage: "header" | "weights" | "ready", loaded: number, total: number, bytesPerSecond: number, from: "network" | "cache" | "file"}} Progress bytes of weights that are on the GPU */
/** @typedef {{type: "lost" | "restored", message: string}} DeviceEvent */
/**
 * @typedef {object} LoadOptions
 * @property {(progress: Progress) => void} [onProgress]
 * @property {AbortSignal} [signal]
 * @property {number} [context] tokens that a conversation may have; by default what the model was trained for, at most 4096
 * @property {boolean} [cache] keep downloads for the next visit; true by default
 * @property {(event: DeviceEvent) => void} [onDevice] the GPU was lost (a driver's reset, say), and the model is back
 */
/**
 * @typedef {object} AnswerOptions
 * @property {number} [maxTokens] by default as many as the context holds
 * @property {number} [temperature] 0 takes the most likely token always; 0.8 by default
 * @property {number} [topK] choose among the k most likely tokens; 40 by default, 0 is off
 * @property {number} [topP] choose among the most likely tokens that together have this probability; 0.95 by default, 1 is off
 * @property {number} [minP] leave out tokens less likely than this times the likeliest; 0.05 by default, 0 is off
 * @property {number} [repeatPenalty] above 1 makes the last 64 tokens less likely; 1 by default
 * @property {number} [frequencyPenalty]
 * @property {number} [presencePenalty]
 * @property {number} [seed] the same seed gives the same answer
 * @property {string[]} [stop] texts that end the answer; they are not given
 * @property {AbortSignal} [signal]
 * @property {(done: number, total: number) => void} [onPrompt] tokens of a long prompt that are read
 */
/** @typedef {{role: string, content: string}} Message */
/** @typedef {{name: string, vendor: string, architecture: string, software: boolean, f16: boolean, subgroups: boolean, subgroupSize: [number, number], maxBufferSize: number, maxBindingSize: number, maxWorkgroupStorage: number}} GpuCard */
/** @typedef {{name: string | null, architecture: string, parameters: number, bytes: number, format: string, contextLength: number, context: number, vocabSize: number, blockCount: number, embeddingLength: number, hasChatTemplate: boolean, gpuBytes: number, source: string, gpu: GpuCard}} ModelInfo */
/** @typedef {{promptTokens: number, newPromptTokens: number, tokens: number, timeToFirstToken: number | null, tokensPerSecond: number | null, stop: "end" | "stop-string" | "length" | "context" | "aborted", seed: number, contextUsed: number, context: number, wasmBytes: number, gpuBytes: number}} Stats of the last answer; seconds */
/** @typedef {AsyncIterable<string> & {text(): Promise<string>}} Answer pieces of text as they come, or all of it */
/** @typedef {{prompt: string, answer: string} | {text: string}} Example */
/** @typedef {{rank?: number, alpha?: number, learningRate?: number, steps?: number, batch?: number, context?: number, targets?: string[], seed?: number, signal?: AbortSignal}} FinetuneOptions */
/** @typedef {{step: number, steps: number, loss: number, learningRate: number, tokens: number, secondsLeft: number}} FinetuneStep */

export const Peregrine = {
    /**
     * Loads a model onto the GPU. Nothing of it leaves the machine.
     * @param {Source} source
     * @param {LoadOptions} [options]
     * @returns {Promise<Model>}
     */
    async load(source, {onProgress, onDevice, signal, context, cache = true} = {}) {
        signal?.throwIfAborted();
        const links = Array.isArray(source) ? source.map(link) : link(source);
        const connection = new Connection();
        connection.onDevice = onDevice;
        // a worker that compiles hears nothing: an abort ends it
        const abort = () => connection.close(signal?.reason);
        signal?.addEventListener("abort", abort, {once: true});
        try {
            const card = await connection.call("load", {source: links, context, cache}, {signal, onEvent: onProgress});
            return new Model(connection, {...card, source: shown(links)});
        } catch (error) {
            connection.close();
            throw error;
        } finally {
            signal?.removeEventListener("abort", abort);
        }
    },

    /** Whether this browser can run models, and what to do if not. */
    support,

    /** The models that are kept on this machine. */
    cache,
};

/** A model on the GPU. */
export class Model {
    #connection;

    /** @param {Connection} connection @param {ModelInfo} info */
    constructor(connection, info) {
        this.#connection = connection;
        /** @type {ModelInfo} */
        this.info = info;
        /** The adapter that {@link Model.finetune} gave. @type {{trained: boolean, enabled: boolean, steps?: number}} */
        this.adapter = {trained: false, enabled: false};
        /**
         * The answer to a conversation. What does not fit the context goes, the oldest first; a system message stays.
         * `chat.completions.create` is the same in OpenAI's shapes.
         * @type {((messages: Message[], options?: AnswerOptions) => Answer) & {completions: ReturnType<typeof completions>}}
         */
        this.chat = Object.assign((messages, options = {}) => this.#answer({messages}, options), {completions: completions(this)});
    }

    /**
     * Continues a text, given as such or as token ids.
     * @param {string | number[]} prompt
     * @param {AnswerOptions} [options]
     * @returns {Answer}
     */
    generate(prompt, options = {}) {
        return this.#answer({prompt}, options);
    }

    /** @param {object} what @param {AnswerOptions} options @returns {Answer} */
    #answer(what, {signal, onPrompt, ...options}) {
        const stream = async function* (connection) {
            const pieces = connection.stream("answer", {...what, options}, {signal});
            for await (const event of pieces) {
                if ("piece" in event) yield event.piece;
                else if ("prompt" in event) onPrompt?.(event.prompt, event.total);
            }
        };
        const answer = stream(this.#connection);
        return Object.assign(answer, {
            async text() {
                let text = "";
                for await (const piece of answer) text += piece;
                return text;
            },
        });
    }

    /**
     * @param {string} text
     * @param {{addSpecial?: boolean, parseSpecial?: boolean}} [options] add the tokens that a text begins with; find control tokens in it
     * @returns {Promise<number[]>}
     */
    async tokenize(text, {addSpecial = true, parseSpecial = false} = {}) {
        return Array.from(await this.#connection.call("tokenize", {text, addSpecial, parseSpecial}));
    }

    /** @param {number[]} ids @returns {Promise<string>} */
    detokenize(ids) {
        return this.#connection.call("detokenize", Uint32Array.from(ids));
    }

    /** The logits after a prompt's last token, [V]. @param {string | number[]} prompt @returns {Promise<Float32Array>} */
    logits(prompt) {
        return this.#connection.call("logits", prompt);
    }

    /** Of the last answer, and the memory in use. @returns {Promise<Stats>} */
    stats() {
        return this.#connection.call("stats");
    }

    /** Makes room for so many tokens, at most the model's own; the conversation so far has to be read again. @param {number} tokens */
    async setContext(tokens) {
        this.info = {...await this.#connection.call("setContext", tokens), source: this.info.source};
    }

    /**
     * Trains a LoRA adapter on examples, which then answers with the model. Leaving the loop, or the signal, ends the training;
     * what was learned until then is used.
     * @param {Example[]} examples prompts with answers, or texts
     * @param {FinetuneOptions} [options]
     * @returns {AsyncGenerator<FinetuneStep>}
     */
    async *finetune(examples, {signal, ...options} = {}) {
        const lines = examples.map(example => this.#line(example)).join("\n");
        const begin = performance.now();
        let steps = 0;
        try {
            for await (const event of this.#connection.stream("learn", {examples: lines, options, base: this.info.name ?? this.info.source}, {signal, lenient: true})) {
                if (!("step" in event)) continue;
                steps = event.step;
                const secondsLeft = (performance.now() - begin) / 1e3 / event.step * (event.steps - event.step);
                yield {...event, secondsLeft};
            }
        } finally {
            if (steps > 0) this.adapter = {trained: true, enabled: true, steps};
        }
    }

    /** An example as a line of training data. @param {Example} example */
    #line(example) {
        if ("text" in example) return JSON.stringify({text: example.text});
        const {prompt, answer} = example;
        if (!this.info.hasChatTemplate) return JSON.stringify({prompt, completion: answer});
        return JSON.stringify({messages: [{role: "user", content: prompt}, {role: "assistant", content: answer}]});
    }

    /** Answers with the adapter, or without. @param {boolean} on */
    async useAdapter(on) {
        await this.#connection.call("useAdapter", on);
        this.adapter.enabled = on;
    }

    /**
     * The adapter as files: one for llama.cpp, or the two of Hugging Face's PEFT.
     * @param {"gguf" | "peft"} format
     * @returns {Promise<{name: string, blob: Blob}[]>}
     */
    async exportAdapter(format) {
        const files = await this.#connection.call("adapterFiles");
        if (!files.length) throw new PeregrineError("argument", "there is no adapter yet: train one with finetune()");
        return files
            .filter(file => file.name.endsWith(".gguf") === (format === "gguf"))
            .map(({name, bytes}) => ({name, blob: new Blob([bytes])}));
    }

    /** Gives the GPU's memory back. The model cannot be used afterwards. */
    async free() {
        await this.#connection.call("free");
        this.#connection.close();
    }

    /** For tests: what a driver's reset does to the GPU. */
    loseDevice() {
        return this.#connection.call("loseDevice");
    }
}

/** A worker, and what it was asked. */
class Connection {
    #worker = startWorker();
    /** @type {Map<number, {resolve: Function, reject: Function, onEvent: Function}>} */
    #calls = new Map();
    #next = 0;
    #closed = false;
    /** @type {((event: DeviceEvent) => void) | undefined} */
    onDevice;

    constructor() {
        this.#worker.onmessage = ({data: {id, event, result, error}}) => {
            const call = this.#calls.get(id);
            if (event?.device) this.onDevice?.(event.device);
            else if (event) call?.onEvent(event);
            else this.#calls.delete(id);
            if (error) call?.reject(PeregrineError.fromMessage(error));
            else if (!event) call?.resolve(result);
        };
        this.#worker.onerror = event => {
            event.preventDefault();
            this.#fail(new PeregrineError("engine", `the worker failed: ${event.message ?? "its files did not load"}`));
        };
    }

    #fail(error) {
        for (const call of this.#calls.values()) call.reject(error);
        this.#calls.clear();
    }

    /**
     * @param {string} method
     * @param {any} [argument]
     * @param {{signal?: AbortSignal, onEvent?: (event: any) => void}} [options]
     * @returns {Promise<any>}
     */
    call(method, argument, {signal, onEvent} = {}) {
        if (this.#closed) return Promise.reject(new PeregrineError("argument", "the model was freed: load it again"));
        const id = this.#next++;
        const abort = () => this.#worker.postMessage({abort: id});
        return new Promise((resolve, reject) => {
            this.#calls.set(id, {resolve, reject, onEvent: event => onEvent?.(event)});
            this.#worker.postMessage({id, method, argument});
            if (signal?.aborted) abort();
            signal?.addEventListener("abort", abort, {once: true});
        }).finally(() => signal?.removeEventListener("abort", abort)).catch(error => {
            throw signal?.aborted ? signal.reason : error;
        });
    }

    /**
     * A call's events as they come. Leaving the loop ends the work; so does the signal, which throws its reason unless lenient.
     * @param {string} method
     * @param {any} argument
     * @param {{signal?: AbortSignal, lenient?: boolean}} options
     * @returns {AsyncGenerator<any>}
     */
    async *stream(method, argument, {signal, lenient = false}) {
        const own = new AbortController();
        const stop = () => own.abort(signal?.reason);
        if (signal?.aborted) stop();
        signal?.addEventListener("abort", stop, {once: true});
        const events = [];
        /** @type {(value?: any) => void} */
        let wake = () => {};
        let ended = false;
        const work = this.call(method, argument, {signal: own.signal, onEvent: event => (events.push(event), wake())});
        const outcome = work.then(() => undefined, error => error).finally(() => (ended = true, wake()));
        try {
            while (true) {
                while (events.length) yield events.shift();
                if (ended) break;
                await new Promise(resolve => wake = resolve);
            }
            const error = await outcome;
            if (signal?.aborted && !lenient) throw signal.reason;
            if (error && !signal?.aborted) throw error;
        } finally {
            signal?.removeEventListener("abort", stop);
            if (!ended) own.abort();
            await outcome; // the model is free for the next when the loop is left
        }
    }

    /** Ends the worker and whatever it is at. */
    close(reason = new PeregrineError("argument", "the model was freed: load it again")) {
        this.#closed = true;
        this.#worker.terminate();
        this.#fail(reason);
    }
}

/** Browsers start workers from the page's own origin only: one that comes from another, a CDN say, is imported by one from here. */
function startWorker() {
    const url = new URL("./worker.js", import.meta.url);
    const options = /** @type {const} */ ({type: "module", name: "peregrine"});
    if (url.origin === location.origin) return new Worker(url, options);
    const starter = URL.createObjectURL(new Blob([`import ${JSON.stringify(url)};`], {type: "text/javascript"}));
    try {
        return new Worker(starter, options);
    } finally {
        setTimeout(() => URL.revokeObjectURL(starter), 60_000); // it is read later
    }
}

/** A part of a source for the worker, which has another base. @param {any} part */
function link(part) {
    if (typeof part !== "string" && !(part instanceof URL)) return part;
    const base = globalThis.document?.baseURI ?? location.href;
    if (!URL.canParse(String(part), base)) throw new PeregrineError("argument", `no model: expected a URL, a File or an array of them, got the text ${JSON.stringify(part)}`);
    return new URL(part, base).href;
}

/** What a source is called. */
function shown(source) {
    const one = Array.isArray(source) ? source[0] : source;
    if (typeof one === "string") return decodeURIComponent(new URL(one).pathname.split("/").pop() ?? one);
    return one.name ?? "a file";
}
