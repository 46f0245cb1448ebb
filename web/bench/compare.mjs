// The same model in Peregrine and in transformers.js (ONNX Runtime's WebGPU), in turn in one Chromium: loading, the time to
// the first token and the tokens per second after it. Each round has a page of its own for each, so loads are fresh.
// node compare.mjs MODEL.gguf ONNX-FOLDER [--rounds 2] [--tokens 8] [--only peregrine|transformers] [--prompt short|long]
import {cpSync, mkdtempSync, rmSync, writeFileSync} from "node:fs";
import {availableParallelism, loadavg, tmpdir} from "node:os";
import {join} from "node:path";
import {fileURLToPath} from "node:url";
import {parseArgs} from "node:util";
import {launch, serve} from "../test/browser.mjs";

const {values: options, positionals: [gguf, onnx]} = parseArgs({
    allowPositionals: true,
    options: {
        rounds: {type: "string", default: "2"}, tokens: {type: "string", default: "8"}, only: {type: "string"},
        prompt: {type: "string"},
    },
});
if (!gguf || !onnx) {
    console.error("node compare.mjs MODEL.gguf ONNX-FOLDER [--rounds 2] [--tokens 8] [--only peregrine|transformers] [--prompt short|long]");
    process.exit(1);
}
const tokens = +options.tokens;
const prompts = chosen(options.prompt, {
    short: "The capital of France is",
    long: "A lighthouse stood on the rocks at the end of the bay. Every evening the keeper climbed the stairs, lit the lamp and "
        + "wrote down the weather in a thick book. Ships passed far out on the sea, and he knew most of them by the shape of "
        + "their sails. One night a storm came up from the south. The waves were as high as the door, and the wind blew so hard "
        + "that the windows shook. The keeper looked into the dark and saw a small light that moved up and down. He took",
});

/** Both run in the page: they load the model, answer each prompt greedily and note when tokens came. */
const runtimes = {
    async peregrine({tokens, prompts}) {
        const {Peregrine} = await import("/web/src/peregrine.js");
        const begin = performance.now();
        const model = await Peregrine.load("/model.gguf", {context: 512, cache: false});
        const load = performance.now() - begin;
        const answers = {};
        for (const [name, prompt] of Object.entries(prompts)) {
            const asked = performance.now();
            let first;
            let text = "";
            for await (const piece of model.generate(prompt, {temperature: 0, maxTokens: tokens})) {
                first ??= performance.now();
                text += piece;
            }
            const stats = await model.stats();
            answers[name] = {first: first - asked, rate: (stats.tokens - 1) / (performance.now() - first) * 1e3,
                tokens: stats.tokens, read: stats.newPromptTokens, text};
        }
        await model.free();
        return {load, answers};
    },

    async transformers({tokens, prompts}) {
        const {AutoModelForCausalLM, AutoTokenizer, BaseStreamer, env} = await import("/transformers/transformers.min.js");
        Object.assign(env, {allowRemoteModels: false, allowLocalModels: true, localModelPath: "/", useBrowserCache: false});
        const ort = `${location.origin}/ort/ort-wasm-simd-threaded.asyncify`;
        env.backends.onnx.wasm.wasmPaths = {mjs: `${ort}.mjs`, wasm: `${ort}.wasm`};
        const begin = performance.now();
        const tokenizer = await AutoTokenizer.from_pretrained("onnx");
        const model = await AutoModelForCausalLM.from_pretrained("onnx", {device: "webgpu", dtype: "q4"});
        const load = performance.now() - begin;
        const answers = {};
        for (const [name, prompt] of Object.entries(prompts)) {
            const asked = performance.now();
            const came = []; // the prompt comes first, then token by token
            const streamer = Object.assign(new BaseStreamer(), {put: () => came.push(performance.now()), end() {}});
            const inputs = tokenizer(prompt);
            const ids = await model.generate({...inputs, max_new_tokens: tokens, do_sample: false, streamer});
            const read = inputs.input_ids.dims[1];
            answers[name] = {first: came[1] - asked, rate: (came.length - 2) / (came.at(-1) - came[1]) * 1e3,
                tokens: came.length - 1, read, text: tokenizer.decode(ids.tolist()[0].slice(read))};
        }
        await model.dispose();
        return {load, answers};
    },
};

/** All, or the one of a name. */
function chosen(name, all) {
    if (name !== undefined && !Object.hasOwn(all, name)) throw new Error(`${name} is none of ${Object.keys(all).join(", ")}`);
    return name === undefined ? all : {[name]: all[name]};
}

/** A folder with what the pages need. They are copies: the server refuses links that lead out of its folder. */
function site() {
    const here = fileURLToPath(new URL(".", import.meta.url));
    const folder = mkdtempSync(join(tmpdir(), "peregrine-bench-"));
    const places = {
        "web/src": join(here, "../src"), "web/pkg": join(here, "../pkg"), "model.gguf": gguf, "onnx": onnx,
        "transformers/transformers.min.js": join(here, "node_modules/@huggingface/transformers/dist/transformers.min.js"),
    };
    for (const end of ["mjs", "wasm"]) {
        const file = `ort-wasm-simd-threaded.asyncify.${end}`;
        places[`ort/${file}`] = join(here, "node_modules/onnxruntime-web/dist", file);
    }
    for (const [name, place] of Object.entries(places)) cpSync(place, join(folder, name), {recursive: true, dereference: true});
    writeFileSync(join(folder, "index.html"), "<!doctype html><title>bench</title>");
    return folder;
}

const middle = numbers => [...numbers].sort((a, b) => a - b)[numbers.length >> 1];
const seconds = milliseconds => (milliseconds / 1e3).toFixed(2);

const folder = site();
const server = await serve(folder);
const browser = await launch();
const runs = Object.fromEntries(Object.keys(chosen(options.only, runtimes)).map(name => [name, []]));
try {
    for (let round = 1; round <= +options.rounds; round++) {
        for (const [name, list] of Object.entries(runs)) {
            // transformers.js asks for files that a model may lack, and Chromium notes each as an error.
            const page = await browser.page(server.url, {allow: [/status of 404/]});
            const run = await page.evaluate(runtimes[name], {tokens, prompts});
            await page.close();
            list.push(run);
            console.log(`round ${round}, ${name}: load ${seconds(run.load)} s`);
            for (const [prompt, {first, rate, tokens, read, text}] of Object.entries(run.answers)) {
                console.log(`    ${prompt} (${read} tokens): first token ${seconds(first)} s, then ${rate.toFixed(3)} tokens/s, ${tokens} tokens: ${JSON.stringify(text)}`);
            }
        }
    }
} finally {
    await browser.close();
    await server.close();
    rmSync(folder, {recursive: true, force: true});
}

const measures = {"load, s": run => run.load / 1e3};
for (const prompt of Object.keys(prompts)) {
    measures[`${prompt} prompt, first token, s`] = run => run.answers[prompt].first / 1e3;
    measures[`${prompt} prompt, tokens/s`] = run => run.answers[prompt].rate;
}
console.log(`\nmedians of ${options.rounds} rounds on ${availableParallelism()} cores; load average now ${loadavg()[0].toFixed(1)}`);
for (const [name, measure] of Object.entries(measures)) {
    const medians = Object.entries(runs).map(([runtime, list]) => [runtime, middle(list.map(measure))]);
    const ratio = medians.length === 2 ? `, ratio ${(medians[0][1] / medians[1][1]).toFixed(2)}` : "";
    console.log(`${name}: ${medians.map(([runtime, value]) => `${runtime} ${value.toFixed(2)}`).join(", ")}${ratio}`);
}
