// OpenAI's chat completions over a model in the page: the same requests and answers, without a server.

import {PeregrineError} from "./errors.js";

/** What {@link Model.stats} calls the end of an answer, in OpenAI's words. */
const FINISH = {end: "stop", "stop-string": "stop", length: "length", context: "length", aborted: "stop"};

/**
 * @typedef {object} Request
 * @property {{role: string, content: string}[]} messages
 * @property {boolean} [stream]
 * @property {{include_usage?: boolean}} [stream_options]
 * @property {string} [model] for the answer's own field; there is one model
 * @property {number} [max_tokens]
 * @property {number} [max_completion_tokens]
 * @property {number} [temperature]
 * @property {number} [top_p]
 * @property {number} [frequency_penalty]
 * @property {number} [presence_penalty]
 * @property {number} [seed]
 * @property {string | string[]} [stop]
 * @property {number} [n] 1
 * @property {AbortSignal} [signal]
 */

/** @param {import("./peregrine.js").Model} model */
export function completions(model) {
    return {
        /**
         * @param {Request} request
         * @param {{signal?: AbortSignal}} [options]
         * @returns {Promise<any>} a completion; with `stream` an async iterable of chunks
         */
        async create(request, {signal = request.signal} = {}) {
            if ((request.n ?? 1) !== 1) throw new PeregrineError("argument", `n: expected 1, got ${request.n}`);
            const named = {
                maxTokens: request.max_completion_tokens ?? request.max_tokens,
                temperature: request.temperature,
                topP: request.top_p,
                frequencyPenalty: request.frequency_penalty,
                presencePenalty: request.presence_penalty,
                seed: request.seed,
                stop: typeof request.stop === "string" ? [request.stop] : request.stop,
            };
            const given = Object.entries(named).filter(([, value]) => value !== undefined && value !== null);
            const answer = model.chat(request.messages, {...Object.fromEntries(given), signal});
            const head = {id: `chatcmpl-${crypto.randomUUID()}`, created: Math.floor(Date.now() / 1e3), model: request.model ?? model.info.source};
            if (request.stream) return chunks(model, answer, head, request.stream_options?.include_usage);
            const content = await answer.text();
            const {finish_reason, usage} = await outcome(model);
            const message = {role: "assistant", content, refusal: null};
            return {...head, object: "chat.completion", choices: [{index: 0, message, finish_reason, logprobs: null}], usage};
        },
    };
}

async function* chunks(model, answer, head, withUsage) {
    const chunk = (delta, finish_reason = null) =>
        ({...head, object: "chat.completion.chunk", choices: [{index: 0, delta, finish_reason, logprobs: null}]});
    yield chunk({role: "assistant", content: ""});
    for await (const content of answer) yield chunk({content});
    const {finish_reason, usage} = await outcome(model);
    yield chunk({}, finish_reason);
    if (withUsage) yield {...head, object: "chat.completion.chunk", choices: [], usage};
}

async function outcome(model) {
    const {stop, promptTokens, tokens} = await model.stats();
    const usage = {prompt_tokens: promptTokens, completion_tokens: tokens, total_tokens: promptTokens + tokens};
    return {finish_reason: FINISH[stop], usage};
}
