// Runs the built-in model in headless Chromium, through WebGPU on its software GPU, and compares the ids that it gives
// with those of the float32 reference. Serves what web/build.sh made; the page posts its answer back.
import assert from "node:assert/strict";
import {spawn} from "node:child_process";
import {once} from "node:events";
import {existsSync, mkdtempSync, readFileSync, rmSync} from "node:fs";
import {createServer} from "node:http";
import {tmpdir} from "node:os";
import {join} from "node:path";
import test from "node:test";

const file = path => readFileSync(new URL(`../${path}`, import.meta.url));
const reference = JSON.parse(file("tests/data/tales_reference.json")).prompts[0];
const expected = reference.numpy_f32_on_q8_0.greedy32;

const page = `<script type="module">
import init, {generateIds, tokenize} from "/web/pkg/peregrine.js";
async function answer() {
    await init();
    const model = new Uint8Array(await (await fetch("/models/tales-2m.Q8_0.gguf")).arrayBuffer());
    const prompt = tokenize(model, ${JSON.stringify(reference.prompt)});
    return {ids: [...await generateIds(model, prompt, ${expected.length})]};
}
const body = JSON.stringify(await answer().catch(error => ({error: String(error)})));
fetch("/answer", {method: "POST", body});
</script>`;
const types = {js: "text/javascript", wasm: "application/wasm", gguf: "application/octet-stream"};

// Serves the page and its files, and calls back with what the page posts.
async function serve(answered) {
    const server = createServer(async (request, response) => {
        const url = request.url;
        response.setHeader("Content-Type", types[url.split(".").pop()] ?? "text/html");
        if (url === "/") response.end(page);
        else if (url === "/favicon.ico") response.end();
        else if (url !== "/answer") response.end(file(url));
        else answered(JSON.parse((await request.toArray()).join("")));
    });
    await once(server.listen(0, "127.0.0.1"), "listening");
    return server;
}

const chromium = ["chromium", "google-chrome", "chromium-browser"].map(name => `/usr/bin/${name}`).find(existsSync);

test("the built-in model in Chromium", {skip: !chromium && "Chromium is not installed"}, async () => {
    let answered;
    const answer = new Promise(resolve => answered = resolve);
    const server = await serve(answered);
    const profile = mkdtempSync(join(tmpdir(), "peregrine-"));
    const browser = spawn(chromium, [
        "--headless", "--no-sandbox", "--no-first-run", `--user-data-dir=${profile}`,
        "--disable-quic", "--disable-background-networking", "--disable-component-update", "--disable-sync",
        "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan",
        `http://127.0.0.1:${server.address().port}/`,
    ], {stdio: "ignore"});
    const ended = once(browser, "exit").then(([code]) => answered({error: `Chromium ended with ${code}`}));
    const late = setTimeout(answered, 120_000, {error: "no answer within two minutes"});
    try {
        assert.deepEqual(await answer, {ids: expected});
    } finally {
        clearTimeout(late);
        browser.kill();
        await ended;
        server.closeAllConnections();
        server.close();
        try {
            rmSync(profile, {recursive: true, force: true, maxRetries: 10, retryDelay: 200});
        } catch {
            // a process of Chromium's that is slow to end still writes there; the folder is a temporary one
        }
    }
});
