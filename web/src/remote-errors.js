// What is said when a file cannot be fetched, and whether trying again makes sense.

import {PeregrineError} from "./errors.js";

/** A server that asks for more patience than this gets its error shown instead. */
export const LONGEST_WAIT = 60;

/** A failure that may pass: the next attempt goes on where this one ended. */
export class Passing extends PeregrineError {
    /**
     * @param {string} message
     * @param {{cause?: unknown, seconds?: number}} [options] `seconds`: how long the server asks to wait
     */
    constructor(message, {cause, seconds} = {}) {
        super("network", message, {cause});
        this.seconds = seconds;
    }
}

/** The server has another file now. */
export class Changed extends PeregrineError {
    /** @param {string} url */
    constructor(url) {
        super("network", `${shown(url)} has changed at the server while it was being loaded: load it again.`);
    }
}

/**
 * @param {string} url
 * @param {Response} response
 */
export function refusal(url, response) {
    const {status} = response;
    const said = `${shown(url)}: the server answers ${status}${response.statusText && ` ${response.statusText}`}`;
    if (status === 429 || status === 408 || status >= 500) {
        const after = response.headers.get("Retry-After");
        const seconds = !after ? 0 : /^\d+$/.test(after) ? +after : Math.max(0, (Date.parse(after) - Date.now()) / 1000) || 0;
        const when = seconds > LONGEST_WAIT ? `in ${Math.ceil(seconds / 60)} minutes` : "later";
        return new Passing(`${said}: ${status === 429 ? "it has had too many requests" : "it has trouble"}. Try again ${when}.`, {seconds});
    }
    const advice = status === 401 || status === 403
        ? "the file needs an account, or its link has expired. Get a new link, or download the file and open it as a file."
        : status === 404 || status === 410
            ? "there is no such file. Check the URL."
            : "expected the file. Check the URL.";
    return new PeregrineError("network", `${said}: ${advice}`);
}

/**
 * Browsers do not tell pages why a request failed.
 * @param {string} url
 * @param {unknown} error
 * @param {boolean} met whether the server has answered before
 */
export function unreachable(url, error, met) {
    const {protocol, host, origin, pathname} = new URL(url);
    const why = error instanceof Error ? error.message : String(error);
    const broken = `${shown(url)}: ${met ? "the connection broke" : `${host} could not be reached`} (${why})`;
    if (!navigator.onLine) return `${broken}: this device is offline. Connect it and load again.`;
    if (met || origin === location.origin) return `${broken}. Check the connection and load again.`;
    const advice = pathname.includes("/blob/")
        ? "This looks like the address of a page about the file: take its download link, which has /resolve/ (Hugging Face) or /raw/ (GitHub) instead of /blob/."
        : protocol === "http:" && location.protocol === "https:"
            ? "A page that came by https may load nothing by http: use an https address."
            : `Check the address and the connection; the server must also let other sites' pages read its files (CORS: "Access-Control-Allow-Origin: ${location.origin}"). Else download the file and open it as a file.`;
    return `${broken}. ${advice}`;
}

/**
 * A URL as messages show it: signatures in queries are long, and secret.
 * @param {string} url
 */
export function shown(url) {
    const {origin, pathname, search} = new URL(url);
    return `${origin}${pathname}${search && "?.."}`;
}
