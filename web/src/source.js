// Where a model's files come from, for the worker: files the user has chosen, and URLs, which are kept in the store as they
// come, read by ranges, or held, whichever the browser and the server allow.

import {CHUNK, absolute, partsOf} from "./cache.js";
import {Download, amount, closed, keptPart, messageOf, withKept} from "./download.js";
import {PeregrineError} from "./errors.js";
import {Part, openFile} from "./part.js";
import {shown} from "./remote-errors.js";
import {Remote} from "./remote.js";
import {Stored} from "./store.js";

export {Part};

/** @typedef {string | URL | Blob | (string | URL | Blob)[]} Source */

/**
 * `waits` and `stall`: see RemoteOptions.
 * @typedef {{cache?: boolean, signal?: AbortSignal, waits?: number[], stall?: number}} SourceOptions
 */

/** What is held of a file whose server gives it only as a whole, where there is no store for it. */
const MOST_HELD = 256 << 20;

/**
 * Opens a model's files, all of them or none.
 * @param {Source} source
 * @param {SourceOptions} [options]
 * @returns {Promise<Part[]>} in the order given; the URL of one file of a split model brings the others
 */
export async function openSource(source, {cache = true, signal = new AbortController().signal, ...patience} = {}) {
    signal.throwIfAborted();
    const items = itemsOf(source);
    const failing = new AbortController();
    const options = {cache, signal: AbortSignal.any([signal, failing.signal]), ...patience};
    const opening = items.map(item => item instanceof Blob ? openFile(item, signal) : openUrl(item, options));
    try {
        const parts = await Promise.all(opening);
        // One after the other: the engine reads them in this order, and browsers open few connections.
        let before = Promise.resolve();
        for (const part of parts) before = part.begin(before);
        return parts;
    } catch (error) {
        failing.abort(error);
        for (const result of await Promise.allSettled(opening)) if (result.status === "fulfilled") await result.value.close();
        throw error;
    }
}

/**
 * @param {string} url
 * @param {{cache: boolean, signal: AbortSignal, waits?: number[], stall?: number}} options
 * @returns {Promise<Part>}
 */
async function openUrl(url, {cache, signal, ...patience}) {
    const name = lastOf(url);
    if (/^(blob|data):/.test(url)) return openFile(await blobOf(url, signal), signal);
    const closing = new AbortController();
    const remote = new Remote(url, {...patience, signal: AbortSignal.any([signal, closing.signal])});
    /** @type {string | undefined} */
    let warning;
    /** @type {Stored | undefined} */
    let stored;
    try {
        if (cache) stored = await Stored.open(url, signal);
    } catch (error) {
        signal.throwIfAborted();
        warning = `${name} is not kept for the next visit: this browser stores no files here, as in private windows (${messageOf(error)}).`;
    }
    try {
        if (stored?.complete) return keptPart(name, "cache", stored, remote, {signal, closing});
        const start = await remote.open().catch(error => {
            throw withKept(error, stored);
        });
        // What is no model is given to the engine, which says what it is, but not kept.
        const download = stored && String.fromCharCode(...start) === "GGUF" ? new Download(name, stored, remote) : undefined;
        warning = await download?.prepare(url) ?? warning;
        if (download && stored && !download.useless) {
            if (stored.complete) return keptPart(name, "cache", stored, remote, {signal, closing});
            // Without a size there is no part: the end of the file has to be seen.
            if (remote.version.size === undefined) await download.run(Promise.resolve());
            if (download.failure) throw download.failure;
            return keptPart(name, "network", stored, remote, {signal, closing, download, warning});
        }
        stored?.close();
        if (!remote.ranges) return openFile(await held(url, name, remote, warning), signal, {from: "network", warning});
        const close = async () => closing.abort(closed(name));
        const {size = 0} = remote.version; // servers that know ranges tell it
        return new Part({name, size, from: "network"}, (start, end) => remote.range(start, end), {signal, warning, close});
    } catch (error) {
        stored?.close();
        throw error;
    }
}

/**
 * All of a file whose server does not give parts of it; browsers move what is big in there to the disk.
 * @param {string} url
 * @param {string} name
 * @param {Remote} remote
 * @param {string | undefined} warning why it is not in the store
 */
async function held(url, name, remote, warning) {
    const refuse = () => new PeregrineError(warning ? "quota" : "network", `${shown(url)}: its server gives files only as a whole (it knows no byte ranges), and without a store at most ${amount(MOST_HELD)} of such a file are held.${warning ? ` ${warning}` : ""} Allow the cache, take a server that knows ranges, or download the file and open it as a file.`);
    const {size} = remote.version;
    if (size !== undefined && size > MOST_HELD) throw refuse();
    const blobs = [];
    let length = 0;
    let pieces = [];
    let waiting = 0;
    for await (const piece of remote.pieces(0, size)) {
        pieces.push(piece);
        length += piece.length;
        waiting += piece.length;
        if (length > MOST_HELD) throw refuse();
        if (waiting < CHUNK) continue;
        blobs.push(new Blob(pieces));
        pieces = [];
        waiting = 0;
    }
    return new File([...blobs, ...pieces], name);
}

/** @param {Source} source */
function itemsOf(source) {
    const given = Array.isArray(source) ? source : [source];
    if (!given.length) throw new PeregrineError("argument", "no model: expected a URL, a File or an array of them, got an empty array.");
    const items = given.flatMap(item => {
        if (item instanceof Blob) return [item];
        if (typeof item !== "string" && !(item instanceof URL)) {
            throw new PeregrineError("argument", `no model: expected a URL, a File or an array of them, got ${item === null ? "null" : typeof item}.`);
        }
        const url = absolute(item);
        const {protocol, username, password} = new URL(url);
        if (!/^(https?|blob|data):$/.test(protocol)) {
            throw new PeregrineError("argument", `${url}: a page cannot read ${protocol} URLs. Give an https URL, or open the file as a File.`);
        }
        if (username || password) throw new PeregrineError("argument", `${shown(url)}: browsers send no name and password out of a URL: leave them out.`);
        return given.length === 1 ? partsOf(url) : [url];
    });
    for (const item of items) {
        const name = typeof item === "string" ? lastOf(item) : item instanceof File ? item.name : "";
        const [, , count] = /-(\d{5})-of-(\d{5})\.gguf$/i.exec(name) ?? [];
        if (count && +count !== items.length) {
            throw new PeregrineError("argument", `${name} is one of ${+count} files of a model, got ${items.length}: give all of them together.`);
        }
    }
    return items;
}

/**
 * @param {string} url of bytes that are in this browser already
 * @param {AbortSignal} signal
 */
async function blobOf(url, signal) {
    try {
        return await (await fetch(url, {signal})).blob();
    } catch (error) {
        signal.throwIfAborted();
        throw new PeregrineError("bad-file", `${url.slice(0, 60)} cannot be read (${messageOf(error)}): a blob URL ends with the page that made it, or when it is revoked.`, {cause: error});
    }
}

/**
 * The last name in a URL's path.
 * @param {string} url
 */
function lastOf(url) {
    const name = new URL(url).pathname.split("/").pop() || "model.gguf";
    try {
        return decodeURIComponent(name);
    } catch {
        return name;
    }
}
