// Holds one model: the WebAssembly engine, its GPU device and its files. The page talks to it through peregrine.js.
//
// In come {id, method, argument} and {abort: id, reason}; out go {id, event}, and at the end {id, result} or {id, error}.

import init, {Engine, memoryBytes} from "../pkg/peregrine.js";
import {PeregrineError} from "./errors.js";
import {openSource} from "./source.js";

/** Milliseconds between two reports of progress. */
const REPORT_EVERY = 100;
/** A lost device is replaced so many times for one request. */
const MOST_LOSSES = 3;

/** @type {Engine} */ let engine;
/** What the model is on: a handle of its own, since the engine cannot be asked while it is at work. @type {import("../pkg/peregrine.js").Device | undefined} */ let device;
/** @type {import("./source.js").Part[]} */ let parts = [];
/** What the session was made with. @type {number | undefined} */ let context;
/** The adapter in use, a GGUF file. @type {Uint8Array | undefined} */ let adapter;
/** The adapter trained last, as files. @type {{name: string, bytes: Uint8Array}[]} */ let trained = [];
/** Of the last answer. @type {object | undefined} */ let stats;
/** Of the GPU adapter, which the engine does not see. @type {{vendor: string, architecture: string}} */ let maker = {vendor: "", architecture: ""};
/** Requests under way or waiting, by their ids. @type {Map<number, AbortController>} */ const requests = new Map();

// wgpu does not know that browsers have subgroups, so whoever requests a device gets them here.
const requestDevice = globalThis.GPUAdapter?.prototype.requestDevice;
if (requestDevice) {
    GPUAdapter.prototype.requestDevice = function (descriptor = {}) {
        maker = {vendor: this.info.vendor, architecture: this.info.architecture};
        const requiredFeatures = [...(descriptor.requiredFeatures ?? [])];
        if (this.features.has("subgroups")) requiredFeatures.push("subgroups");
        return requestDevice.call(this, {...descriptor, requiredFeatures});
    };
}

/**
 * What a page can ask for. Each gets its argument and what it needs to report and to stop; one runs at a time.
 * @type {Record<string, (argument: any, work: {signal: AbortSignal, report: (event: object) => void}) => Promise<any>>}
 */
const methods = {
    async load(options, {signal, report}) {
        if (!navigator.gpu) throw new PeregrineError("no-webgpu", "this browser has no WebGPU, or not in workers");
        await init();
        context = options.context;
        report({stage: "header", loaded: 0, total: 0, bytesPerSecond: 0, from: "file"});
        parts = await openSource(options.source, {cache: options.cache, signal});
        const meter = new Meter(report);
        engine = await Engine.open(parts.map(part => meter.watch(part)));
        meter.begin(engine.tensorBytes);
        await loadEngine();
        meter.stage("ready");
        return card();
    },

    async tokenize({text, addSpecial, parseSpecial}) {
        return engine.tokenize(text, addSpecial, parseSpecial);
    },

    async detokenize(ids) {
        return engine.detokenize(ids);
    },

    async answer({prompt, messages, options}, {signal, report}) {
        const begin = performance.now();
        let ids = messages
            ? engine.chatPrompt(JSON.stringify(messages), options.maxTokens, localSeconds())
            : typeof prompt === "string" ? engine.tokenize(prompt, true, true) : Uint32Array.from(prompt);
        const asked = ids.length;
        let before = 0; // tokens given before a device was lost
        let first;
        for (let losses = 0; ; losses++) {
            try {
                const rest = options.maxTokens === undefined ? options : {...options, maxTokens: options.maxTokens - before};
                const piece = text => {
                    first ??= (performance.now() - begin) / 1e3;
                    if (text) report({piece: text});
                };
                const goOn = done => {
                    if (done < ids.length) report({prompt: done, total: ids.length});
                    return !signal.aborted;
                };
                const told = JSON.parse(await engine.answer(ids, JSON.stringify(rest), piece, goOn));
                stats = {...told, promptTokens: asked, tokens: before + told.tokens};
                return null;
            } catch (error) {
                if (error.code !== "device-lost" || losses === MOST_LOSSES) throw error;
                const given = engine.given();
                before += given.length;
                ids = Uint32Array.from([...ids, ...given]);
                await restore(error, report);
            }
        }
    },

    async logits(prompt, {report}) {
        const ids = typeof prompt === "string" ? engine.tokenize(prompt, true, true) : Uint32Array.from(prompt);
        return withDevice(() => engine.logits(ids), report);
    },

    async stats() {
        return {...stats, wasmBytes: memoryBytes(), gpuBytes: card().gpuBytes};
    },

    async setContext(tokens, {report}) {
        await withDevice(() => engine.setContext(tokens), report);
        context = tokens;
        return card();
    },

    async learn({examples, options, base}, {signal, report}) {
        const step = (step, steps, loss, learningRate, tokens) => {
            report({step, steps, loss, learningRate, tokens});
            return !signal.aborted;
        };
        try {
            const files = await engine.learn(examples, JSON.stringify(options), base, step);
            trained = [];
            for (let i = 0; i < files.length; i += 2) trained.push({name: files[i], bytes: files[i + 1]});
        } catch (error) {
            if (error.code === "device-lost") await restore(error, report);
            throw error;
        }
        await useAdapter(true);
        return null;
    },

    useAdapter,

    async adapterFiles() {
        return trained;
    },

    /** For tests: what a driver that resets does. */
    async loseDevice() {
        device?.destroy();
    },

    async free() {
        device?.destroy();
        await Promise.all(parts.map(part => part.close()));
        return null;
    },
};

async function loadEngine() {
    await engine.load(context);
    device = engine.device();
}

/** @param {boolean} on */
async function useAdapter(on) {
    adapter = on ? trained.find(file => file.name.endsWith(".gguf"))?.bytes : undefined;
    if (on && !adapter) throw new PeregrineError("argument", "there is no adapter yet: train one first");
    engine.setAdapter(adapter);
    return null;
}

/** Everything about model and GPU. */
function card() {
    const card = JSON.parse(engine.card());
    if (card.gpu) card.gpu = {...card.gpu, ...maker, name: card.gpu.name || [maker.vendor, maker.architecture].join(" ")};
    return card;
}

/** Loads the model onto a new device, from where its files are, with the adapter that was in use. */
async function restore(error, report) {
    report({device: {type: "lost", message: error.message}});
    await loadEngine();
    engine.setAdapter(adapter);
    report({device: {type: "restored", message: "the model is loaded again"}});
}

/** Does something, again where the device was lost. */
async function withDevice(work, report) {
    try {
        return await work();
    } catch (error) {
        if (error.code !== "device-lost") throw error;
        await restore(error, report);
        return work();
    }
}

/** Seconds since 1970 in the visitor's time zone: what templates tell as the date. */
function localSeconds() {
    return Math.floor(Date.now() / 1e3) - new Date().getTimezoneOffset() * 60;
}

/** Counts what the engine reads of a model's files, and reports it now and then. */
class Meter {
    #report;
    #loaded = 0;
    #total = 0;
    #from = "file";
    #start = performance.now();
    #last = 0;

    constructor(report) {
        this.#report = report;
    }

    /** @param {import("./source.js").Part} part */
    watch(part) {
        this.#from = part.from;
        const read = async (offset, length) => {
            const bytes = await part.read(offset, length);
            this.#loaded += length;
            if (performance.now() - this.#last > REPORT_EVERY) this.stage(this.#total ? "weights" : "header");
            return bytes;
        };
        return {name: part.name, size: part.size, read};
    }

    /** The header is read, so many bytes of weights follow. */
    begin(total) {
        [this.#loaded, this.#total, this.#start] = [0, total, performance.now()];
    }

    stage(stage) {
        this.#last = performance.now();
        const seconds = (this.#last - this.#start) / 1e3;
        const loaded = stage === "ready" ? this.#total : Math.min(this.#loaded, this.#total);
        this.#report({stage, loaded, total: this.#total, bytesPerSecond: seconds > 0 ? loaded / seconds : 0, from: this.#from});
    }
}

let queue = Promise.resolve();

self.onmessage = ({data}) => {
    if ("abort" in data) {
        requests.get(data.abort)?.abort(data.reason);
        return;
    }
    const {id, method, argument} = data;
    const controller = new AbortController();
    requests.set(id, controller);
    const {signal} = controller;
    const report = event => postMessage({id, event});
    const run = async () => {
        try {
            signal.throwIfAborted();
            postMessage({id, result: await methods[method](argument, {signal, report})});
        } catch (error) {
            const ofEngine = typeof error.code === "string" && !(error instanceof PeregrineError);
            postMessage({id, error: PeregrineError.toMessage(ofEngine ? new PeregrineError(error.code, error.message) : error)});
        } finally {
            requests.delete(id);
        }
    };
    // a test's loss of the device, and freeing, cannot wait for what runs
    if (method === "loseDevice" || method === "free") run();
    else queue = queue.then(run);
};
