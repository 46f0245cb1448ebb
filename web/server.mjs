// A small static file server: byte ranges, ETags and the MIME types that modules and WebAssembly need. No packages.
// As a program: node server.mjs FOLDER [PORT]
import {createReadStream, realpathSync} from "node:fs";
import {realpath, stat} from "node:fs/promises";
import {createServer} from "node:http";
import {extname, join, sep} from "node:path";
import {pipeline} from "node:stream/promises";
import {pathToFileURL} from "node:url";

const types = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml",
    ".wasm": "application/wasm",
    ".gguf": "application/octet-stream",
};

/**
 * Serves a folder. Tests give `intercept`: it sees each request first and returns true if it has answered, so that it can
 * cut connections, refuse ranges or make up bytes; headers that it sets without answering are kept.
 * @param {string} folder
 * @param {{port?: number, host?: string, intercept?: (request: import("node:http").IncomingMessage,
 *     response: import("node:http").ServerResponse) => boolean | undefined | Promise<boolean | undefined>}} [options]
 * @returns {Promise<{url: string, close(): Promise<void>, requests: {method: string, url: string, range?: string,
 *     headers: import("node:http").IncomingHttpHeaders}[]}>} `url` ends in a slash
 */
export async function serve(folder, {port = 0, host = "127.0.0.1", intercept} = {}) {
    const root = await realpath(folder);
    const requests = [];
    const server = createServer(async (request, response) => {
        const {method, url, headers} = request;
        requests.push({method, url, range: headers.range, headers});
        try {
            if (!await intercept?.(request, response)) await answer(root, request, response);
        } catch (error) {
            if (response.headersSent) response.destroy();
            else refuse(response, error.status ?? 500, error.status ? error.message : "The server failed");
            // Pages leave in the middle of an answer all the time; anything else is a fault of this server's.
            if (!error.status && error.code !== "ERR_STREAM_PREMATURE_CLOSE") console.error(error);
        }
    });
    await new Promise((resolve, reject) => server.once("error", reject).listen(port, host, resolve));
    const close = () => new Promise(resolve => {
        server.close(() => resolve());
        server.closeAllConnections();
    });
    return {url: `http://${host.includes(":") ? `[${host}]` : host}:${server.address().port}/`, close, requests};
}

async function answer(root, request, response) {
    if (request.method !== "GET" && request.method !== "HEAD") throw status(405, "Only GET and HEAD are served");
    const [path, query] = split(request.url, "?");
    let file = await inside(root, path);
    let about = await stat(file);
    if (about.isDirectory() && !path.endsWith("/")) {
        // Only the path's own last name: "//host/" would lead elsewhere.
        response.writeHead(301, {Location: `./${path.split("/").pop()}/${query ? `?${query}` : ""}`}).end();
        return;
    }
    if (about.isDirectory()) {
        file = await inside(root, `${path}index.html`);
        about = await stat(file);
    }
    if (!about.isFile()) throw status(404, "No such file");

    const etag = `"${about.size.toString(16)}-${Math.trunc(about.mtimeMs).toString(16)}"`;
    response.setHeader("ETag", etag);
    response.setHeader("Last-Modified", about.mtime.toUTCString());
    response.setHeader("Accept-Ranges", "bytes");
    response.setHeader("Content-Type", types[extname(file)] ?? "application/octet-stream");
    if (!response.hasHeader("Cache-Control")) response.setHeader("Cache-Control", "no-cache");
    if (request.headers["if-none-match"] === etag) {
        response.writeHead(304).end();
        return;
    }
    const condition = request.headers["if-range"];
    const range = !condition || condition === etag ? rangeOf(request.headers.range, about.size) : undefined;
    const [start, end] = range ?? [0, about.size]; // end is exclusive
    if (range && start >= end) {
        response.setHeader("Content-Range", `bytes */${about.size}`);
        throw status(416, `The file has ${about.size} bytes`);
    }
    if (range) response.setHeader("Content-Range", `bytes ${start}-${end - 1}/${about.size}`);
    response.setHeader("Content-Length", end - start);
    response.writeHead(range ? 206 : 200);
    if (request.method === "HEAD" || start === end) response.end();
    else await pipeline(createReadStream(file, {start, end: end - 1}), response);
}

/** The real path of a file in the folder; links that lead out of it are refused too. */
async function inside(root, path) {
    let name;
    try {
        name = decodeURIComponent(path);
    } catch {
        throw status(400, "The path is not UTF-8");
    }
    if (name.includes("\0")) throw status(400, "The path has a zero byte");
    const file = await realpath(join(root, name)).catch(() => undefined);
    if (file === undefined || file !== root && !file.startsWith(root.endsWith(sep) ? root : root + sep)) {
        throw status(404, "No such file");
    }
    return file;
}

/** Where the asked range begins and (exclusively) ends; empty if it lies beyond the file; undefined for the whole file. */
function rangeOf(header, size) {
    const [, from, to] = /^bytes=(\d*)-(\d*)$/.exec(header ?? "") ?? [];
    if (!from && !to || from && to && +from > +to) return undefined;
    if (!from) return [Math.max(0, size - +to), +to ? size : 0];
    return [+from, to ? Math.min(+to + 1, size) : size];
}

function split(text, mark) {
    const at = text.indexOf(mark);
    return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + 1)];
}

const status = (code, message) => Object.assign(new Error(message), {status: code});

function refuse(response, code, message) {
    response.removeHeader("ETag");
    response.removeHeader("Last-Modified");
    response.writeHead(code, {"Content-Type": "text/plain; charset=utf-8", "Content-Length": Buffer.byteLength(message)});
    response.end(message);
}

if (process.argv[1] && import.meta.url === pathToFileURL(realpathSync(process.argv[1])).href) {
    const [folder = ".", port = "8080"] = process.argv.slice(2);
    try {
        if (!/^\d+$/.test(port) || +port > 65535) throw new Error(`the port is a number up to 65535, got "${port}"`);
        console.log((await serve(folder, {port: +port})).url);
    } catch (error) {
        const advice = {
            EADDRINUSE: `port ${port} is taken: give another one, as in: node server.mjs ${folder} 8081`,
            EACCES: `port ${port} may not be used: give one above 1023`,
            ENOENT: `there is no folder ${folder}`,
        };
        console.error(`error: ${advice[error.code] ?? error.message}`);
        process.exit(1);
    }
}
