// A file in the store, or on its way there while it is being read.

import {CHUNK} from "./cache.js";
import {PeregrineError} from "./errors.js";
import {Part} from "./part.js";
import {Changed} from "./remote-errors.js";
import {compare} from "./remote.js";
import {StoreFull} from "./store.js";

/** @typedef {import("./remote.js").Remote} Remote */
/** @typedef {import("./store.js").Stored} Stored */

/**
 * A file in the store, or on its way there.
 * @param {string} name
 * @param {"network" | "cache"} from
 * @param {Stored} stored
 * @param {Remote} remote
 * @param {{signal: AbortSignal, closing: AbortController, download?: Download, warning?: string}} options
 */
export function keptPart(name, from, stored, remote, {signal, closing, download, warning}) {
    const size = stored.entry?.size ?? remote.version.size ?? stored.loaded;
    const load = async (start, end) => {
        const index = start / CHUNK;
        await download?.until(index);
        if (index >= stored.chunks) return remote.range(start, end);
        return await stored.read(index) ?? mended(index, start, end);
    };
    const mended = async (index, start, end) => {
        const damaged = `${name}: the copy kept in this browser is damaged`;
        const bytes = await remote.range(start, end).catch(error => {
            if (!(error instanceof PeregrineError)) throw error;
            throw new PeregrineError("network", `${damaged}, and the damaged piece could not be fetched again. ${error.message} Or delete the kept copy and load all of it again.`, {cause: error});
        });
        if (await stored.repair(index, bytes)) return bytes;
        throw new PeregrineError("bad-file", `${damaged}, and the server has another file by now. Delete the kept copy and load the new file.`);
    };
    const close = async () => {
        if (!download?.finished || size - stored.loaded > CHUNK) closing.abort(closed(name));
        await download?.finished;
        closing.abort(closed(name));
        stored.close();
    };
    return new Part({name, size, from}, load, {signal, download, warning, close});
}

/** A whole file on its way into the store. */
export class Download {
    /** @type {unknown} */
    failure;
    /** @type {Part | undefined} */
    part;
    /** From when it has begun. @type {Promise<void> | undefined} */
    finished;
    /** Whether the store takes nothing of this file. */
    useless = false;
    /** Whether no more will be stored. */
    #over = false;
    /** @type {(() => void)[]} */
    #waiting = [];
    #name;
    #stored;
    #remote;

    /**
     * @param {string} name
     * @param {Stored} stored
     * @param {Remote} remote
     */
    constructor(name, stored, remote) {
        this.#name = name;
        this.#stored = stored;
        this.#remote = remote;
    }

    /**
     * Makes the store ready: to go on with what it has of this version of the file, or to begin anew.
     * @param {string} url
     * @returns {Promise<string | undefined>} a warning if the file, or what is missing of it, will not be kept
     */
    async prepare(url) {
        const stored = this.#stored;
        const {version} = this.#remote;
        const goOn = () => stored.entry !== undefined && compare(stored.entry, version) === "same";
        const {usage = 0, quota = Infinity} = await navigator.storage.estimate();
        // A file that begins anew takes the place of its older version.
        const [missing, free] = goOn()
            ? [(version.size ?? 0) - stored.loaded, quota - usage]
            : [version.size ?? 0, quota - usage + stored.loaded];
        if (missing > free) {
            this.#over = true;
            this.useless = !goOn() || !this.#remote.ranges;
            return `${this.#name} is not kept for the next visit: it takes ${amount(missing)} more, and this site may store ${amount(Math.max(0, free))} more. Delete other models to make room.`;
        }
        try {
            if (!await stored.beginWriting()) {
                this.useless = true;
                return `${this.#name} is read without keeping it: another tab is loading it too.`;
            }
            if (!stored.complete && !goOn()) await stored.reset({url, name: this.#name, ...version});
            if (stored.complete) stored.endWriting(); // another tab was faster
        } catch (error) {
            stored.endWriting();
            this.useless = true;
            return this.#full(error);
        }
    }

    /**
     * @param {Promise<void>} before what to wait for
     * @returns {Promise<void>} never fails: those who wait for chunks get the failure
     */
    run(before) {
        return before.then(() => this.#over ? undefined : this.finished = this.#run());
    }

    async #run() {
        try {
            await this.#fill();
            await this.#stored.finish();
        } catch (error) {
            this.#stored.endWriting();
            if (!(error instanceof StoreFull)) {
                this.failure = withKept(error, this.#stored);
            } else if (this.#remote.ranges) {
                if (this.part) this.part.warning = this.#full(error);
            } else {
                this.failure = new PeregrineError("quota", `${this.#full(error)} Its server gives it only as a whole, so it cannot go on without.`, {cause: error});
            }
        }
        this.#over = true;
        this.#wake();
    }

    async #fill() {
        const stored = this.#stored;
        const chunk = new Uint8Array(CHUNK);
        let length = 0;
        for await (const piece of this.#remote.pieces(stored.loaded, stored.entry?.size)) {
            for (let at = 0; at < piece.length;) {
                const part = piece.subarray(at, at + CHUNK - length);
                chunk.set(part, length);
                at += part.length;
                length += part.length;
                if (length < CHUNK) continue;
                await stored.append(chunk);
                length = 0;
                this.#wake();
            }
        }
        if (length) await stored.append(chunk.subarray(0, length));
    }

    /**
     * Waits for a chunk, or for the time when it is clear that it will not be stored.
     * @param {number} index
     */
    async until(index) {
        while (index >= this.#stored.chunks) {
            if (this.failure) throw this.failure;
            if (this.#over) return;
            await new Promise(resolve => this.#waiting.push(() => resolve(undefined)));
        }
    }

    #wake() {
        for (const resolve of this.#waiting.splice(0)) resolve();
    }

    /** @param {unknown} error */
    #full(error) {
        return `${this.#name} is not kept for the next visit: this site's storage takes no more (${messageOf(error)}). Delete other models to make room.`;
    }
}

/**
 * Of a failure, that loading again does not begin anew.
 * @param {unknown} error
 * @param {Stored | undefined} stored
 */
export function withKept(error, stored) {
    if (!(error instanceof PeregrineError) || error instanceof Changed || !stored?.loaded) return error;
    const size = stored.entry?.size;
    return new PeregrineError(error.code, `${error.message} What has come is kept, ${amount(stored.loaded)}${size ? ` of ${amount(size)}` : ""}: loading again goes on from there.`, {cause: error});
}

/** @param {number} bytes */
export function amount(bytes) {
    return bytes < 1e9 ? `${Math.ceil(bytes / 1e6)} MB` : `${(bytes / 1e9).toFixed(1)} GB`;
}

/** @param {unknown} error */
export const messageOf = error => error instanceof Error ? error.message : String(error);

/** @param {string} name */
export const closed = name => new PeregrineError("argument", `${name} has been closed.`);
