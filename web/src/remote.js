// One file at a URL, read by byte ranges. Connections break, servers are busy, files change: all of that is dealt with here.

import {PeregrineError} from "./errors.js";
import {Changed, LONGEST_WAIT, Passing, refusal, shown, unreachable} from "./remote-errors.js";

/** @typedef {import("./cache.js").Bytes} Bytes */

/**
 * What tells one version of a file from another, as far as a page may see it: across origins a server has to expose ETag
 * and Content-Range, while Last-Modified and Content-Length are always readable.
 * @typedef {{size?: number, etag?: string, modified?: string}} Version
 */

/**
 * `waits`: milliseconds before each further attempt, from the last byte that came; `stall`: how long a connection may be silent.
 * @typedef {{signal: AbortSignal, waits?: number[], stall?: number}} RemoteOptions
 */

/**
 * Whether two answers are about the same bytes; "unknown" if the server shows too little to tell.
 * @param {Version} a
 * @param {Version} b
 * @returns {"same" | "different" | "unknown"}
 */
export function compare(a, b) {
    if (a.size !== undefined && b.size !== undefined && a.size !== b.size) return "different";
    // W/ marks answers that may differ in their encoding only.
    const [one, other] = a.etag && b.etag ? [a.etag, b.etag].map(tag => tag.replace(/^W\//, "")) : [a.modified, b.modified];
    if (!one || !other) return "unknown";
    return one === other ? "same" : "different";
}

export class Remote {
    /** @type {Version} What is known of the file; each answer is held against it. */
    version = {};
    /** Whether the server gives parts of the file. */
    ranges = true;
    #url;
    #signal;
    #waits;
    #stall;
    #met = false;
    /** Whether If-Range may be sent: across origins it would need the server's leave beforehand, which few give. */
    #conditional = false;

    /**
     * @param {string} url
     * @param {RemoteOptions} options
     */
    constructor(url, {signal, waits = [1000, 2000, 4000, 8000, 16000], stall = 30_000}) {
        this.#url = url;
        this.#signal = signal;
        this.#waits = waits;
        this.#stall = stall;
    }

    /**
     * Learns the file's version and whether the server knows ranges. Asks for four bytes rather than by HEAD, which signed
     * URLs refuse and servers answer carelessly.
     * @returns {Promise<Bytes>} the file's first four bytes, or as many as there are
     */
    async open() {
        this.version = {};
        const start = new Uint8Array(4);
        let length = 0;
        for await (const piece of this.pieces(0, 4)) {
            start.set(piece, length);
            length += piece.length;
        }
        if (this.version.size === undefined && this.ranges) this.version.size = await this.#askSize();
        if (this.version.size === 0 || length === 0) {
            throw new PeregrineError("bad-file", `${shown(this.#url)} is empty: check the URL, or load the file anew onto the server.`);
        }
        return start.subarray(0, length);
    }

    /**
     * @param {number} start
     * @param {number} end exclusive
     * @returns {Promise<Bytes>}
     */
    async range(start, end) {
        const bytes = new Uint8Array(end - start);
        let at = 0;
        for await (const piece of this.pieces(start, end)) {
            bytes.set(piece, at);
            at += piece.length;
        }
        return bytes;
    }

    /**
     * The bytes from `start` up to `end`, or to the file's end, as they come; a broken connection is taken up at the byte
     * where it broke, always from the original URL, since those it redirects to expire.
     * @param {number} start
     * @param {number} [end] exclusive
     * @returns {AsyncGenerator<Bytes, void, void>}
     */
    async *pieces(start, end) {
        let at = start;
        for (let failures = 0; ;) {
            try {
                const before = at;
                for await (const piece of this.#attempt(at, end)) {
                    at += piece.length;
                    failures = 0;
                    yield piece;
                }
                const last = Math.min(end ?? Infinity, this.version.size ?? Infinity);
                if (at === last || last === Infinity) return;
                // Some servers give less at a time than they are asked for; none at all is a fault.
                if (at === before) throw new Passing(`${shown(this.#url)} ends at byte ${at}, expected ${last}: the file or its server is damaged.`);
            } catch (error) {
                await this.#wait(error, failures++);
            }
        }
    }

    /**
     * @param {number} start
     * @param {number | undefined} end
     * @returns {AsyncGenerator<Bytes, void, void>}
     */
    async *#attempt(start, end) {
        const attempt = new AbortController();
        try {
            const response = await this.#ask(attempt, start, end);
            if (!response?.body) return;
            const reader = response.body.getReader();
            const whole = response.status === 200; // all from the first byte, no matter what was asked for
            for (let at = whole ? 0 : start; ;) {
                const {done, value} = await this.#within(attempt, reader.read());
                if (done) return;
                const wanted = value.subarray(Math.max(0, start - at), end === undefined ? undefined : Math.max(0, end - at));
                at += value.length;
                if (this.version.size !== undefined && at > this.version.size) throw this.#longer(at);
                if (wanted.length) yield wanted;
                // A whole file is read to its real end, which may lie beyond what the server has announced.
                if (end !== undefined && at >= end && !(whole && end === this.version.size)) return;
            }
        } finally {
            attempt.abort(); // ends the connection if there is more to come
        }
    }

    /**
     * @param {AbortController} attempt
     * @param {number} start
     * @param {number | undefined} end
     * @returns {Promise<Response | undefined>} undefined for a file that ends before `start`
     */
    async #ask(attempt, start, end) {
        /** @type {Record<string, string>} */
        const headers = {Range: `bytes=${start}-${end === undefined ? "" : end - 1}`};
        if (this.#conditional && this.version.etag?.startsWith('"')) headers["If-Range"] = this.version.etag;
        const response = await this.#fetch(attempt, {headers});
        const version = versionOf(response);
        // An empty file has no range at all.
        if (response.status === 416 && start === 0 && version.size === 0) {
            this.version = version;
            return undefined;
        }
        if (response.status !== 416 && response.status !== 206 && response.status !== 200) throw refusal(this.#url, response);
        if (response.status === 416 || compare(this.version, version) === "different") throw new Changed(this.#url);
        const from = contentRange(response)?.start;
        if (response.status === 206 && from !== undefined && from !== start) {
            throw new PeregrineError("network", `${shown(this.#url)}: the server was asked for byte ${start} and gives byte ${from}: its handling of ranges is broken. Download the file and open it as a file.`);
        }
        this.version = {size: this.version.size ?? version.size, etag: this.version.etag ?? version.etag, modified: this.version.modified ?? version.modified};
        // "From here to the end" is answered with the whole file by some servers that do know ranges.
        if (end !== undefined) this.ranges = response.status === 206;
        this.#conditional = new URL(response.url || this.#url).origin === location.origin;
        this.#met = true;
        return response;
    }

    /** The size, from a server that gives ranges but does not let this page see Content-Range. */
    async #askSize() {
        for (const method of ["HEAD", "GET"]) {
            const attempt = new AbortController();
            try {
                const response = await this.#fetch(attempt, {method, headers: {Range: "bytes=0-"}});
                const length = response.headers.get("Content-Length");
                if (response.ok && length) return +length;
            } catch (error) {
                if (method === "GET") throw error;
                await this.#wait(error, 0);
            } finally {
                attempt.abort();
            }
        }
        throw new PeregrineError("network", `${shown(this.#url)}: the server does not tell the file's size. Let it send Content-Length, and "Access-Control-Expose-Headers: Content-Range, ETag" to pages of other sites.`);
    }

    /**
     * @param {AbortController} attempt
     * @param {RequestInit} options
     * @returns {Promise<Response>}
     */
    #fetch(attempt, options) {
        const signal = AbortSignal.any([this.#signal, attempt.signal]);
        // no-store: the browser's own cache would keep gigabytes a second time.
        return this.#within(attempt, fetch(this.#url, {...options, signal, cache: "no-store"}));
    }

    /**
     * Waits for the network, though not forever.
     * @template T
     * @param {AbortController} attempt
     * @param {Promise<T>} promise
     * @returns {Promise<T>}
     */
    async #within(attempt, promise) {
        const timer = setTimeout(() => attempt.abort(new Error(`nothing came for ${this.#stall / 1000} s`)), this.#stall);
        try {
            return await promise;
        } catch (error) {
            this.#signal.throwIfAborted();
            throw new Passing(unreachable(this.#url, error, this.#met), {cause: error});
        } finally {
            clearTimeout(timer);
        }
    }

    /**
     * Before the next attempt; throws if there is to be none.
     * @param {unknown} error
     * @param {number} failures
     */
    async #wait(error, failures) {
        this.#signal.throwIfAborted();
        // A server that was never reached will hardly be within half a minute: one more attempt is enough.
        const most = this.#met || error instanceof Passing && error.seconds !== undefined ? this.#waits.length : Math.min(1, this.#waits.length);
        if (!(error instanceof Passing) || failures >= most || (error.seconds ?? 0) > LONGEST_WAIT) throw error;
        await sleep(Math.max(this.#waits[failures], (error.seconds ?? 0) * 1000), this.#signal);
    }

    /** @param {number} at */
    #longer(at) {
        return new PeregrineError("network", `${shown(this.#url)}: the server sends more bytes than it said, ${at} instead of ${this.version.size}; perhaps it compresses the file on its way. Let it send the file as it is, or download it and open it as a file.`);
    }
}

/**
 * @param {Response} response
 * @returns {Version}
 */
function versionOf(response) {
    const {headers} = response;
    // Of a compressed answer, Content-Length is another number.
    const length = response.status === 200 && !headers.get("Content-Encoding") ? headers.get("Content-Length") : undefined;
    return {
        size: contentRange(response)?.size ?? (length ? +length : undefined),
        etag: headers.get("ETag") || undefined,
        modified: headers.get("Last-Modified") || undefined,
    };
}

/**
 * @param {Response} response
 * @returns {{start?: number, size?: number} | undefined}
 */
function contentRange(response) {
    const [, start, size] = /^bytes (?:(\d+)-\d+|\*)\/(\d+|\*)$/.exec(response.headers.get("Content-Range") ?? "") ?? [];
    return size && {start: start === undefined ? undefined : +start, size: size === "*" ? undefined : +size} || undefined;
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
function sleep(milliseconds, signal) {
    return new Promise((resolve, reject) => {
        const stop = () => {
            clearTimeout(timer);
            reject(signal.reason);
        };
        const timer = setTimeout(() => {
            signal.removeEventListener("abort", stop);
            resolve();
        }, milliseconds);
        signal.addEventListener("abort", stop, {once: true});
    });
}
