// The models that are kept on this machine, in the origin private file system: for each URL a folder with the file, the
// SHA-256 of each of its chunks and an entry. The page lists and deletes them here; the worker writes and reads in store.js.

import {PeregrineError} from "./errors.js";

/** @typedef {Uint8Array<ArrayBuffer>} Bytes */

/** Files are fetched, checked and held in memory in pieces of this size. */
export const CHUNK = 4 << 20;
export const DIGEST = 32;

export const MODEL = "model.gguf";
export const DIGESTS = "digests";
export const ENTRY = "entry.json";

/**
 * What is known of a kept file. It is written before the first byte and, for servers that do not tell the size, once more
 * at the end; how much is there follows from the lengths of the other two files.
 * @typedef {{url: string, name: string, size?: number, etag?: string, modified?: string, date: string, chunk: number}} Entry
 */

/** @typedef {{url: string, name: string, size: number, complete: boolean, loaded: number, date: string}} CachedModel */

export const cache = {
    /**
     * @returns {Promise<CachedModel[]>} the newest first; each file of a split model on its own
     */
    async list() {
        const models = [];
        for (const [, folder] of await folders()) {
            const entry = await readEntry(folder);
            if (!entry) continue;
            const loaded = await loadedOf(folder, entry);
            const {url, name, size = loaded, date} = entry;
            models.push({url, name, size, complete: loaded === entry.size, loaded, date});
        }
        return models.sort((a, b) => a.date < b.date ? 1 : -1);
    },

    /**
     * Deletes what is kept of a URL, and of the other files of a split model if it is the first; nothing is not an error.
     * @param {string} url
     */
    async delete(url) {
        const urls = partsOf(absolute(url));
        const kept = (await folders()).map(([key]) => key);
        if (!kept.length) return;
        const keys = await Promise.all(urls.map(keyOf));
        await remove(keys.filter(key => kept.includes(key)));
    },

    /** Deletes all models. */
    async clear() {
        await remove((await folders()).map(([key]) => key));
    },

    /**
     * What this site's data takes up, and may take up.
     * @returns {Promise<{usage: number, quota: number, persisted: boolean}>}
     */
    async estimate() {
        const {usage = 0, quota = 0} = await navigator.storage?.estimate?.() ?? {};
        return {usage, quota, persisted: await navigator.storage?.persisted?.() ?? false};
    },

    /**
     * Asks the browser not to delete this site's data when the disk is full.
     * @returns {Promise<boolean>} whether it agreed
     */
    async persist() {
        return await navigator.storage?.persist?.() ?? false;
    },
};

/**
 * The folder of all models; throws a DOMException where the browser keeps no files, as in some private windows.
 * @returns {Promise<FileSystemDirectoryHandle>}
 */
export async function modelsFolder() {
    return (await navigator.storage.getDirectory()).getDirectoryHandle("peregrine-models", {create: true});
}

/** @returns {Promise<[string, FileSystemDirectoryHandle][]>} */
async function folders() {
    let root;
    try {
        root = await modelsFolder();
    } catch {
        return []; // where no files are kept there are none
    }
    const found = [];
    for await (const [key, handle] of root.entries()) {
        if (handle.kind === "directory") found.push([key, handle]);
    }
    return found;
}

/** @param {string[]} keys */
async function remove(keys) {
    const busy = [];
    for (const key of keys) {
        // Any tab that has the file open holds this lock.
        const release = await hold(`${key}/use`, {ifAvailable: true});
        if (!release || !await removeFolder(key)) busy.push(await nameOf(key));
        release?.();
    }
    if (busy.length) {
        throw new PeregrineError("busy", `${busy.join(", ")} cannot be deleted while in use: free the model, or close the tabs that have it loaded.`);
    }
}

/**
 * @param {string} key
 * @returns {Promise<boolean>} false if something still has a file open
 */
async function removeFolder(key) {
    for (let attempt = 0; attempt < 10; attempt++) {
        try {
            await (await modelsFolder()).removeEntry(key, {recursive: true});
            return true;
        } catch (error) {
            const name = error instanceof DOMException ? error.name : "";
            if (name === "NotFoundError") return true; // another tab was faster
            if (name !== "NoModificationAllowedError" && name !== "InvalidModificationError") throw error;
        }
        await new Promise(resolve => setTimeout(resolve, 100)); // a worker that has just ended closes its files late
    }
    return false;
}

/** @param {string} key */
async function nameOf(key) {
    const [, folder] = (await folders()).find(([other]) => other === key) ?? [];
    return folder && (await readEntry(folder))?.name || "A model";
}

/**
 * @param {FileSystemDirectoryHandle} folder
 * @returns {Promise<Entry | undefined>} undefined if there is none that this version understands
 */
export async function readEntry(folder) {
    try {
        const file = await (await folder.getFileHandle(ENTRY)).getFile();
        const entry = JSON.parse(await file.text());
        const sizes = entry.size === undefined || Number.isSafeInteger(entry.size) && entry.size > 0;
        const texts = [entry.url, entry.name, entry.date].every(text => typeof text === "string");
        return entry.chunk === CHUNK && sizes && texts ? entry : undefined;
    } catch {
        return undefined; // missing, or cut off by a crash
    }
}

/**
 * How many bytes are kept and covered by digests: chunks are written before their digests, so more may be there.
 * @param {FileSystemDirectoryHandle} folder
 * @param {Entry} entry
 */
export async function loadedOf(folder, entry) {
    const length = async name => {
        try {
            return (await (await folder.getFileHandle(name)).getFile()).size;
        } catch {
            return 0;
        }
    };
    const [bytes, digests] = [await length(MODEL), await length(DIGESTS)];
    // The last chunk of a file is shorter than the others.
    const {size = Infinity} = entry;
    const covered = Math.floor(digests / DIGEST) * CHUNK;
    return bytes >= size ? Math.min(size, covered) : Math.min(covered, Math.floor(bytes / CHUNK) * CHUNK);
}

/**
 * The URLs of all files of a split model, given any of them; a whole model is itself.
 * @param {string} url
 * @returns {string[]}
 */
export function partsOf(url) {
    const {pathname} = new URL(url);
    const [end, , digits] = /-(\d{5})-of-(\d{5})\.gguf$/i.exec(pathname) ?? [];
    if (!end || +digits < 1) return [url];
    if (+digits > 1000) throw new PeregrineError("argument", `${url} is one of ${+digits} files: models of at most 1000 files are loaded.`);
    return Array.from({length: +digits}, (_, i) => {
        const part = new URL(url);
        part.pathname = pathname.slice(0, -end.length) + end.replace(/\d{5}/, String(i + 1).padStart(5, "0"));
        return part.href;
    });
}

/**
 * A URL as the store knows it.
 * @param {string | URL} url
 */
export function absolute(url) {
    let parsed;
    try {
        parsed = new URL(url, globalThis.document?.baseURI ?? location.href);
    } catch {
        throw new PeregrineError("argument", `"${url}" is not a URL.`);
    }
    parsed.hash = "";
    return parsed.href;
}

/**
 * The name of a URL's folder, and the beginning of its locks' names.
 * @param {string} url
 */
export async function keyOf(url) {
    const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(url));
    return Array.from(new Uint8Array(digest).subarray(0, 16), byte => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Takes a lock that all tabs know; it ends with the page or worker at the latest.
 * @param {string} name
 * @param {LockOptions} options
 * @returns {Promise<(() => void) | undefined>} lets it go; undefined if it was asked for only if available and is not
 */
export function hold(name, options) {
    return new Promise((resolve, reject) => {
        navigator.locks.request(`peregrine-models/${name}`, options, lock => {
            if (!lock) return resolve(undefined);
            return new Promise(release => resolve(() => release(undefined)));
        }).catch(reject);
    });
}
