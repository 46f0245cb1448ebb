// Errors in plain words: what happened, and what to do.
import {el} from "./dom.js";

const words = {
    "no-webgpu": ["The browser gave this page no GPU.", "Close other pages that use much of the GPU and reload this one. If that does not help, the browser may need an update or a setting."],
    "network": ["The file could not be fetched.", "Check the address and the connection, then try again: what has arrived is kept, and loading goes on from there. A server must allow other pages to read its files (CORS); Hugging Face does, except for models that ask you to sign in."],
    "bad-file": ["This file cannot be used.", "Peregrine reads GGUF files of Llama and Qwen models, in F32, F16, BF16, Q4_0 to Q8_0 and Q4_K to Q6_K. Of a split model it needs all parts."],
    "quota": ["There is not enough room on this device.", "Delete a model under “Kept on this device”, or take a smaller one."],
    "device-lost": ["The GPU was lost.", "The system took it away, often for want of memory. Try again; if it happens again, take a smaller model or a smaller context."],
    "context-full": ["The conversation no longer fits the model's context.", "Begin a new conversation, or set a larger context in the settings."],
    "busy": ["The model is busy with something else.", "Wait for it, or stop it."],
    "argument": ["That setting is not possible.", "Change it and try again."],
    "engine": ["The engine could not go on.", "If it says something of memory, take a smaller model or a smaller context."],
};

/** @param {any} error @returns {{title: string, detail: string, advice: string}} */
export function explain(error) {
    const detail = String(error?.message ?? error);
    const [title, advice] = words[error?.code] ?? ["Something went wrong.", "Reload the page and try again."];
    return {title, detail, advice};
}

/** Puts an error into an element and shows it; buttons say what can be done at once. */
export function showError(element, error, ...buttons) {
    const {title, detail, advice} = explain(error);
    element.replaceChildren(
        el("p", {}, el("strong", {}, title), ` ${advice}`),
        detail ? el("p", {class: "detail"}, detail) : "",
        buttons.length ? el("div", {class: "row"}, ...buttons) : "",
    );
    element.hidden = false;
}
