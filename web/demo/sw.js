// Keeps the app's own files on the device, so that the page opens without a network. Models are not its business: only
// the built-in one is among its files; downloads go past it into a store of their own.
const VERSION = ""; // site.mjs fills in these two
const FILES = {}; // path: hash of the contents, as in a script's integrity attribute

const PREFIX = "peregrine-app-";
const NAME = PREFIX + VERSION;
const BASE = new URL("./", self.location.href).href;

// A file is kept under its path and hash, so a new version takes what hasn't changed from the old one.
const key = path => `${BASE}${path}?${encodeURIComponent(FILES[path])}`;

async function fetchFile(path) {
    const response = await fetch(BASE + path, {integrity: FILES[path], cache: "no-cache"});
    if (!response.ok) throw new Error(`${path}: ${response.status}`);
    const blob = await response.blob();
    const headers = new Headers(response.headers);
    headers.delete("Content-Encoding"); // fetch has unpacked it
    headers.set("Content-Length", String(blob.size));
    // A copy, which has no address: a page may not be opened from a response that was redirected.
    return new Response(blob, {headers});
}

async function install() {
    const cache = await caches.open(NAME);
    await Promise.all(Object.keys(FILES).map(async path => {
        await cache.put(key(path), await caches.match(key(path), {ignoreVary: true}) ?? await fetchFile(path));
    }));
}

async function activate() {
    for (const name of await caches.keys()) {
        if (name.startsWith(PREFIX) && name !== NAME) await caches.delete(name);
    }
    await self.clients.claim();
}

// The part of a file that a Range header asks for. The engine reads models so.
async function part(response, range) {
    const match = /^bytes=(\d+)-(\d*)$/.exec(range);
    const blob = await response.blob();
    const first = match ? Number(match[1]) : 0;
    const last = match?.[2] ? Math.min(Number(match[2]), blob.size - 1) : blob.size - 1;
    const headers = new Headers(response.headers);
    if (!match) return new Response(blob, {headers});
    if (first > last) return new Response(null, {status: 416, headers: {"Content-Range": `bytes */${blob.size}`}});
    headers.set("Content-Range", `bytes ${first}-${last}/${blob.size}`);
    headers.set("Content-Length", String(last - first + 1));
    return new Response(blob.slice(first, last + 1), {status: 206, headers});
}

async function answer(request, path) {
    const kept = await caches.match(key(path), {cacheName: NAME, ignoreVary: true});
    if (!kept) return fetch(request); // the browser may have cleared the cache
    const range = request.headers.get("Range");
    const known = request.headers.get("If-Range");
    const same = !known || known === kept.headers.get("ETag") || known === kept.headers.get("Last-Modified");
    return range && same ? part(kept, range) : kept;
}

self.addEventListener("install", event => event.waitUntil(install()));
self.addEventListener("activate", event => event.waitUntil(activate()));

self.addEventListener("fetch", event => {
    const {method, url} = event.request;
    const address = url.split(/[?#]/)[0];
    if (method !== "GET" || !address.startsWith(BASE)) return;
    const path = decodeURIComponent(address.slice(BASE.length)) || "index.html";
    if (Object.hasOwn(FILES, path)) event.respondWith(answer(event.request, path));
});

// A new version waits until the pages of the old one are closed, or until one asks: at its start, if it is the only one,
// or when the visitor pressed "Reload".
self.addEventListener("message", async event => {
    if (event.data === "take over") self.skipWaiting();
    if (event.data !== "take over if alone") return;
    const pages = await self.clients.matchAll({type: "window", includeUncontrolled: true});
    if (pages.filter(page => page.url.startsWith(BASE)).length <= 1) self.skipWaiting();
});
