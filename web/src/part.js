// A file in slices: any bytes of it, out of chunks of which few are in memory, whatever the file's size.

import {CHUNK} from "./cache.js";
import {PeregrineError} from "./errors.js";

/** @typedef {import("./cache.js").Bytes} Bytes */
/** @typedef {import("./download.js").Download} Download */

/** Chunks of one file in memory: the one in use and the one ahead, for each of a few places that are read in turns. */
const RECENT = 8;

/** One file of a model. */
export class Part {
    /** What the user might want to know, such as that the file is not kept; may come while it is read. @type {string | undefined} */
    warning;
    #load;
    #download;
    #close;
    #signal;
    #closed = false;
    /** Chunks by their numbers, the last used last. @type {Map<number, Promise<Bytes>>} */
    #recent = new Map();

    /**
     * @param {{name: string, size: number, from: "network" | "cache" | "file"}} about
     * @param {(start: number, end: number) => Promise<Bytes>} load gives one chunk
     * @param {{signal: AbortSignal, warning?: string, download?: Download, close?: () => Promise<void>}} options
     */
    constructor({name, size, from}, load, {signal, warning, download, close}) {
        this.name = name;
        this.size = size;
        this.from = from;
        this.warning = warning;
        this.#load = load;
        this.#signal = signal;
        this.#download = download;
        this.#close = close;
        if (download) download.part = this;
    }

    /**
     * Exactly these bytes, in memory of their own.
     * @param {number} offset
     * @param {number} length
     * @returns {Promise<Bytes>}
     */
    async read(offset, length) {
        this.#signal.throwIfAborted();
        if (this.#closed) throw new PeregrineError("argument", `${this.name} has been closed.`);
        const end = offset + length;
        if (!Number.isSafeInteger(offset) || !Number.isSafeInteger(end) || offset < 0 || length < 0) {
            throw new PeregrineError("argument", `${this.name}: expected a place in the file, got ${length} bytes at ${offset}.`);
        }
        if (end > this.size) {
            throw new PeregrineError("bad-file", `${this.name} has ${this.size} bytes, but its bytes ${offset} to ${end} are needed: it is cut off. Download it again.`);
        }
        const bytes = new Uint8Array(length);
        for (let at = offset; at < end;) {
            const index = Math.floor(at / CHUNK);
            const piece = (await this.#chunk(index)).subarray(at - index * CHUNK, end - index * CHUNK);
            bytes.set(piece, at - offset);
            at += piece.length;
        }
        return bytes;
    }

    /** Stops what is under way. A file of which little is missing is completed first. */
    async close() {
        this.#closed = true;
        this.#recent.clear();
        await this.#close?.();
    }

    /**
     * @param {Promise<void>} before
     * @returns {Promise<void>} ends with the download, if there is one
     */
    begin(before) {
        return this.#download ? this.#download.run(before) : before;
    }

    /** @param {number} index */
    #chunk(index) {
        const chunk = this.#fetch(index);
        const inOrder = index === 0 || this.#recent.has(index - 1);
        if (inOrder && (index + 1) * CHUNK < this.size) this.#fetch(index + 1);
        return chunk;
    }

    /**
     * @param {number} index
     * @returns {Promise<Bytes>}
     */
    #fetch(index) {
        const chunk = this.#recent.get(index) ?? this.#whole(index);
        this.#recent.delete(index);
        this.#recent.set(index, chunk);
        // The next read tries again; nobody may be waiting for a chunk that was read ahead.
        chunk.catch(() => this.#recent.get(index) === chunk && this.#recent.delete(index));
        for (const oldest of this.#recent.keys()) {
            if (this.#recent.size <= RECENT) break;
            this.#recent.delete(oldest);
        }
        return chunk;
    }

    /** @param {number} index */
    async #whole(index) {
        const start = index * CHUNK;
        const end = Math.min(start + CHUNK, this.size);
        const chunk = await this.#load(start, end);
        if (chunk.length !== end - start) throw new PeregrineError("bad-file", `${this.name}: expected ${end - start} bytes at ${start}, got ${chunk.length}: the file has changed. Load it again.`);
        return chunk;
    }
}

/**
 * @param {Blob} file
 * @param {AbortSignal} signal
 * @param {{from?: "network" | "file", warning?: string}} [about]
 */
export async function openFile(file, signal, {from = "file", warning} = {}) {
    const name = file instanceof File ? file.name : "model.gguf";
    if (!file.size) throw new PeregrineError("bad-file", `${name} is empty: choose the .gguf file of a model.`);
    const load = async (start, end) => {
        try {
            return new Uint8Array(await file.slice(start, end).arrayBuffer());
        } catch (error) {
            throw new PeregrineError("bad-file", `${name} can no longer be read: it was changed, moved or deleted after it was chosen. Choose it again.`, {cause: error});
        }
    };
    return new Part({name, size: file.size, from}, load, {signal, warning});
}
