// Assembles web/dist, a static site: the demo page, the library, what the page needs of others, the built-in model, and a
// service worker that knows each file by its hash. Reads what web/build.sh made; fetches nothing.
import {createHash} from "node:crypto";
import {existsSync, mkdirSync, readFileSync, readdirSync, rmSync, statSync, writeFileSync} from "node:fs";
import {dirname, join} from "node:path";
import {fileURLToPath} from "node:url";

const web = dirname(fileURLToPath(import.meta.url));
const dist = join(web, "dist");

const vendor = {
    "vendor/marked.js": "node_modules/marked/lib/marked.esm.js",
    "vendor/marked.LICENSE": "node_modules/marked/LICENSE",
    "vendor/purify.js": "node_modules/dompurify/dist/purify.es.mjs",
    "vendor/purify.LICENSE": "node_modules/dompurify/LICENSE",
};
const model = "models/tales-2m.Q8_0.gguf";

function fail(message) {
    console.error(message);
    process.exit(1);
}

// The files below a folder, by their paths in it.
function files(folder, ending = /./) {
    return readdirSync(folder, {recursive: true})
        .map(path => String(path).replaceAll("\\", "/"))
        .filter(path => ending.test(path) && statSync(join(folder, path)).isFile())
        .sort();
}

// What goes where: a path in the site to a file here.
function contents() {
    const site = {};
    for (const path of files(join(web, "demo"))) site[path] = join(web, "demo", path);
    for (const path of files(join(web, "src"), /\.js$/)) site[`peregrine/src/${path}`] = join(web, "src", path);
    for (const path of files(join(web, "pkg"), /\.(js|wasm)$/)) site[`peregrine/pkg/${path}`] = join(web, "pkg", path);
    for (const [path, from] of Object.entries(vendor)) site[path] = join(web, from);
    site[model] = join(web, "..", model);
    return site;
}

const sha256 = (data, encoding) => createHash("sha256").update(data).digest(encoding);

// The service worker with its list of files and a version made of their contents.
function serviceWorker(source, hashes) {
    const list = JSON.stringify(hashes, null, 4);
    const version = sha256(source + list, "hex").slice(0, 12);
    const filled = source
        .replace('const VERSION = "";', `const VERSION = "${version}";`)
        .replace("const FILES = {};", `const FILES = ${list};`);
    if (!filled.includes(version) || !filled.includes(list)) fail("web/demo/sw.js has no VERSION or no FILES to fill in");
    return filled;
}

if (!existsSync(join(web, "pkg/peregrine_bg.wasm"))) fail("web/pkg isn't built: run web/build.sh");
if (!existsSync(join(web, "src/peregrine.js"))) fail("web/src/peregrine.js is missing");
if (!existsSync(join(web, "node_modules/marked"))) fail("marked and dompurify are missing: run npm ci in web/");

rmSync(dist, {recursive: true, force: true});
const hashes = {};
let bytes = 0;
for (const [path, from] of Object.entries(contents())) {
    if (path === "sw.js") continue;
    let data = readFileSync(from);
    // The maps aren't part of the site, and developer tools would ask for them.
    if (path.startsWith("vendor/")) data = Buffer.from(data.toString().replace(/^\/\/# sourceMappingURL=.*$/m, ""));
    mkdirSync(dirname(join(dist, path)), {recursive: true});
    writeFileSync(join(dist, path), data);
    hashes[path] = `sha256-${sha256(data, "base64")}`;
    bytes += data.length;
}
writeFileSync(join(dist, "sw.js"), serviceWorker(readFileSync(join(web, "demo/sw.js"), "utf8"), hashes));
console.log(`web/dist: ${Object.keys(hashes).length + 1} files, ${(bytes / 1e6).toFixed(1)} MB`);
