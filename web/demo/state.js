// What the parts of the page share: the model, and what it is busy with. Parts hear of changes, and never call each other
// for them.

/** @type {{model: any, busy: null | "load" | "answer" | "tune"}} */
export const state = {model: null, busy: null};

const changes = new EventTarget();

/**
 * Events: "model" (loaded or gone), "busy", "adapter" (made, switched), "stats" (detail: those of an answer),
 * "store" (models kept on the device).
 * @param {string} type
 * @param {(detail: any) => void} listener
 */
export function on(type, listener) {
    changes.addEventListener(type, event => listener(/** @type {CustomEvent} */ (event).detail));
}

/** @param {string} type @param {any} [detail] */
export function emit(type, detail) {
    changes.dispatchEvent(new CustomEvent(type, {detail}));
}

export function setModel(model) {
    state.model = model;
    emit("model");
}

/** @type {null | {controller: AbortController, done: Promise<void>}} */
let current = null;

/**
 * Runs a task that needs the model to itself; what ran before is stopped first. The task's signal is that of `stop`.
 * @template T
 * @param {"load" | "answer" | "tune"} kind
 * @param {(signal: AbortSignal) => Promise<T>} task
 * @returns {Promise<T>}
 */
export async function work(kind, task) {
    while (current) await stop();
    const controller = new AbortController();
    let finished = () => {};
    const mine = {controller, done: /** @type {Promise<void>} */ (new Promise(resolve => finished = resolve))};
    current = mine;
    state.busy = kind;
    emit("busy");
    try {
        return await task(controller.signal);
    } finally {
        current = null;
        state.busy = null;
        finished();
        emit("busy");
    }
}

/** Stops what runs, and waits for its end. */
export async function stop() {
    current?.controller.abort();
    await current?.done;
}

/** Whether an error only says that somebody pressed stop. */
export const isAbort = error => error?.name === "AbortError" || error?.code === "aborted";
