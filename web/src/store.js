// One file in the store of models, for the worker: written in chunks as they come, read back in chunks held against their
// digests. Any number of tabs may read a file; one writes it.

import {CHUNK, DIGEST, DIGESTS, ENTRY, MODEL, hold, keyOf, loadedOf, modelsFolder, readEntry} from "./cache.js";

/** @typedef {import("./cache.js").Bytes} Bytes */
/** @typedef {import("./cache.js").Entry} Entry */

/**
 * The part of FileSystemSyncAccessHandle in use here; of the type checker's libraries only the one for workers knows it.
 * @typedef {{read(bytes: Bytes, options: {at: number}): number, write(bytes: Bytes, options: {at: number}): number,
 *     truncate(size: number): void, flush(): void, close(): void, mode?: string}} SyncHandle
 */

/** @typedef {{read(start: number, end: number): Promise<Bytes>, close(): void}} Reader */

/** Chunks between two flushes to the disk, which bound what a power cut may take. */
const FLUSH_EVERY = 16;

/** The store cannot take more: the quota is used up, or the disk is full. */
export class StoreFull extends Error {}

export class Stored {
    /** @type {Entry | undefined} */
    entry;
    /** Bytes that are kept and covered by digests. */
    loaded = 0;
    #key;
    #release;
    /** @type {FileSystemDirectoryHandle | undefined} */
    #folder;
    /** @type {Bytes[]} */
    #digests = [];
    /** @type {Reader | undefined} */
    #reader;
    /** @type {{model: SyncHandle, digests: SyncHandle, release: () => void} | undefined} While this tab is the one that writes. */
    #writer;
    #closed = false;

    /**
     * @param {string} key
     * @param {() => void} release
     */
    constructor(key, release) {
        this.#key = key;
        this.#release = release;
    }

    /**
     * What is kept of a URL, if anything; throws where the browser keeps no files. Nobody deletes it until `close`.
     * @param {string} url
     * @param {AbortSignal} signal
     */
    static async open(url, signal) {
        const key = await keyOf(url);
        const release = await hold(`${key}/use`, {mode: "shared", signal});
        const stored = new Stored(key, release ?? (() => {}));
        try {
            await stored.#look();
        } catch (error) {
            stored.close();
            throw error;
        }
        return stored;
    }

    get complete() {
        return this.entry !== undefined && this.loaded === this.entry.size;
    }

    /** Chunks that are kept. */
    get chunks() {
        return Math.ceil(this.loaded / CHUNK);
    }

    async #look() {
        try {
            this.#folder = await (await modelsFolder()).getDirectoryHandle(this.#key);
        } catch (error) {
            if (error instanceof DOMException && error.name === "NotFoundError") return;
            throw error;
        }
        const entry = await readEntry(this.#folder);
        const loaded = entry ? await loadedOf(this.#folder, entry) : 0;
        const digests = loaded ? await (await (await this.#file(DIGESTS)).getFile()).arrayBuffer() : new ArrayBuffer(0);
        this.entry = entry;
        this.loaded = loaded;
        this.#digests = Array.from({length: this.chunks}, (_, i) => new Uint8Array(digests, i * DIGEST, DIGEST));
    }

    /**
     * A chunk, or undefined if it is not what was written: disks and browsers lose bytes.
     * @param {number} index
     * @returns {Promise<Bytes | undefined>}
     */
    async read(index) {
        const start = index * CHUNK;
        const end = Math.min(start + CHUNK, this.loaded);
        for (let attempt = 0; attempt < 2; attempt++) {
            try {
                const bytes = this.#writer ? readHandle(this.#writer.model, start, end) : await (await this.#open()).read(start, end);
                if (same(await digestOf(bytes), this.#digests[index])) return bytes;
            } catch {
                // Unreadable is as good as wrong.
            }
            // Slices of a file go stale when another tab repairs it.
            this.#reader?.close();
            this.#reader = undefined;
        }
        return undefined;
    }

    async #open() {
        if (this.#closed) throw new Error("the store's file has been closed");
        this.#reader ??= await openReader(await this.#file(MODEL));
        return this.#reader;
    }

    /**
     * Makes this tab the one that writes; what another has written meanwhile is seen.
     * @returns {Promise<boolean>} false if another tab is writing
     */
    async beginWriting() {
        const release = await hold(`${this.#key}/write`, {ifAvailable: true});
        if (!release) return false;
        this.#reader?.close();
        this.#reader = undefined;
        try {
            this.#folder = await (await modelsFolder()).getDirectoryHandle(this.#key, {create: true});
            await this.#look();
            const model = await openHandle(await this.#file(MODEL));
            try {
                this.#writer = {model, digests: await openHandle(await this.#file(DIGESTS)), release};
            } catch (error) {
                model.close();
                throw error;
            }
        } catch (error) {
            release();
            // Other tabs that read it keep it from being written, in browsers that have no read-only handles for them.
            if (error instanceof DOMException && error.name === "NoModificationAllowedError") return false;
            throw error;
        }
        return true;
    }

    /**
     * Begins anew.
     * @param {Omit<Entry, "chunk" | "date">} entry
     */
    async reset(entry) {
        const {model, digests} = this.#writing();
        this.#digests = [];
        this.loaded = 0;
        digests.truncate(0);
        model.truncate(0);
        await this.#describe({...entry, date: new Date().toISOString(), chunk: CHUNK});
    }

    /** @param {Entry} entry */
    async #describe(entry) {
        const handle = await openHandle(await this.#file(ENTRY));
        try {
            const bytes = new TextEncoder().encode(JSON.stringify(entry));
            handle.truncate(0);
            writeHandle(handle, bytes, 0, true);
        } finally {
            handle.close();
        }
        this.entry = entry;
    }

    /**
     * Adds the next chunk; all but the file's last are whole. Throws StoreFull.
     * @param {Bytes} bytes
     */
    async append(bytes) {
        const digest = await digestOf(bytes);
        const {model, digests} = this.#writing();
        const index = this.#digests.length;
        const flush = index % FLUSH_EVERY === FLUSH_EVERY - 1;
        writeHandle(model, bytes, index * CHUNK, flush);
        // The digest comes last: only what it covers counts.
        writeHandle(digests, digest, index * DIGEST, flush);
        this.#digests.push(digest);
        this.loaded += bytes.length;
    }

    /** All has been written; other tabs may write from here on, and this one reads on. */
    async finish() {
        if (this.entry && this.entry.size === undefined) await this.#describe({...this.entry, size: this.loaded});
        this.endWriting();
    }

    endWriting() {
        const writer = this.#writer;
        this.#writer = undefined;
        if (!writer) return;
        try {
            writer.model.flush();
            writer.digests.flush();
        } catch {
            // A disk that is full: what is missing shows by its digest.
        }
        writer.model.close();
        writer.digests.close();
        writer.release();
    }

    /**
     * Puts a chunk right, if no other tab is reading or writing the file.
     * @param {number} index
     * @param {Bytes} bytes
     * @returns {Promise<boolean>} false if these bytes are not the ones that were kept either
     */
    async repair(index, bytes) {
        if (!same(await digestOf(bytes), this.#digests[index])) return false;
        const writing = this.#writer !== undefined;
        try {
            if (writing || await this.beginWriting()) writeHandle(this.#writing().model, bytes, index * CHUNK, true);
        } catch {
            // It will be fetched once more next time.
        }
        if (!writing) this.endWriting();
        return true;
    }

    close() {
        this.#closed = true;
        this.endWriting();
        this.#reader?.close();
        this.#reader = undefined;
        this.#release();
    }

    /** @param {string} name */
    async #file(name) {
        if (!this.#folder) throw new Error("the store has no folder for this file");
        return this.#folder.getFileHandle(name, {create: true});
    }

    #writing() {
        if (!this.#writer) throw new Error("the store's file is not open for writing");
        return this.#writer;
    }
}

/**
 * Reads beside other tabs: through a shared handle where the browser has them, else through slices, at a third of the speed.
 * @param {FileSystemFileHandle} file
 * @returns {Promise<Reader>}
 */
async function openReader(file) {
    if ("mode" in (globalThis.FileSystemSyncAccessHandle?.prototype ?? {})) {
        try {
            const handle = await createHandle(file, {mode: "read-only"});
            return {read: async (start, end) => readHandle(handle, start, end), close: () => handle.close()};
        } catch {
            // Another tab is writing.
        }
    }
    const blob = await file.getFile();
    return {read: async (start, end) => new Uint8Array(await blob.slice(start, end).arrayBuffer()), close() {}};
}

/**
 * A handle for writing. A worker that has just ended may still hold its own for a moment.
 * @param {FileSystemFileHandle} file
 */
async function openHandle(file) {
    for (let attempt = 0; ; attempt++) {
        try {
            return await createHandle(file);
        } catch (error) {
            const busy = error instanceof DOMException && error.name === "NoModificationAllowedError";
            if (!busy || attempt === 10) throw error;
        }
        await new Promise(resolve => setTimeout(resolve, 100));
    }
}

/**
 * @param {FileSystemFileHandle} file
 * @param {{mode: string}} [options]
 * @returns {Promise<SyncHandle>}
 */
function createHandle(file, options) {
    return /** @type {any} */ (file).createSyncAccessHandle(options);
}

/**
 * @param {SyncHandle} handle
 * @param {number} start
 * @param {number} end
 */
function readHandle(handle, start, end) {
    const bytes = new Uint8Array(end - start);
    return bytes.subarray(0, handle.read(bytes, {at: start}));
}

/**
 * @param {SyncHandle} handle
 * @param {Bytes} bytes
 * @param {number} at
 * @param {boolean} flush
 */
function writeHandle(handle, bytes, at, flush) {
    let written;
    try {
        written = handle.write(bytes, {at});
        if (flush) handle.flush();
    } catch (error) {
        throw new StoreFull(error instanceof Error ? error.message : String(error), {cause: error});
    }
    if (written !== bytes.length) throw new StoreFull(`${written} of ${bytes.length} bytes could be written`);
}

/** @param {Bytes} bytes */
async function digestOf(bytes) {
    return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

/**
 * @param {Bytes} a
 * @param {Bytes | undefined} b
 */
function same(a, b) {
    return a.length === b?.length && a.every((byte, i) => byte === b[i]);
}
