// The one error of the package, and how errors cross from the worker to the page.

/**
 * What went wrong, for programs; the message is for people and says what to do.
 * @typedef {"no-webgpu" | "network" | "bad-file" | "quota" | "device-lost" | "context-full" | "busy" | "argument" | "engine"} ErrorCode
 */

/**
 * An error in the form in which it crosses postMessage: browsers clone the message and stack of an Error, but not its code.
 * @typedef {{name: string, message: string, code?: ErrorCode, stack?: string}} ErrorMessage
 */

export class PeregrineError extends Error {
    /**
     * @param {ErrorCode} code
     * @param {string} message
     * @param {{cause?: unknown}} [options]
     */
    constructor(code, message, options) {
        super(message, options);
        this.name = "PeregrineError";
        this.code = code;
    }

    /**
     * @param {unknown} error anything that was thrown
     * @returns {ErrorMessage}
     */
    static toMessage(error) {
        if (error instanceof PeregrineError) {
            return {name: error.name, message: error.message, code: error.code, stack: error.stack};
        }
        if (error instanceof DOMException) return {name: error.name, message: error.message};
        // Whatever nobody foresaw is a fault of the engine's.
        if (!(error instanceof Error)) return {name: "PeregrineError", message: String(error), code: "engine"};
        return {name: "PeregrineError", message: `${error.name}: ${error.message}`, code: "engine", stack: error.stack};
    }

    /**
     * The error that `toMessage` was given: a PeregrineError, or a DOMException such as AbortError.
     * @param {ErrorMessage} message
     * @returns {PeregrineError | DOMException}
     */
    static fromMessage({name, message, code, stack}) {
        if (!code) return new DOMException(message, name);
        const error = new PeregrineError(code, message);
        if (stack) error.stack = stack;
        return error;
    }
}
