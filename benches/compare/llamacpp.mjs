// Times llama.cpp, through the npm package node-llama-cpp, in the way `peregrine bench` times Peregrine.
//   node llamacpp.mjs MODEL cpu|vulkan PROMPT_TOKENS TOKENS RUNS   prints one JSON object
// A prompt counts until its first token is chosen; the tokens after that one count as decode. One short run warms up.
import {readFileSync} from "node:fs";
import {availableParallelism} from "node:os";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";

const [modelPath, backend, ...counts] = process.argv.slice(2);
const [promptTokens, tokens, runs] = counts.map(Number);

const gpu = backend === "vulkan" ? "vulkan" : false;
const threads = availableParallelism(); // its own default may be more, and then they wait for each other
const llama = await getLlama({
    gpu, maxThreads: threads, build: "never", skipDownload: true, logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({modelPath, gpuLayers: gpu ? "max" : 0});
const context = await model.createContext({contextSize: promptTokens + tokens + 1, batchSize: promptTokens, threads});
const sequence = context.getSequence();
const words = "The miller's youngest son went up the hill, and there he met an old man who asked him for bread. ";
const prompt = model.tokenize(words.repeat(promptTokens)).slice(0, promptTokens);

// Speeds of one prompt and n tokens after its first, in tokens a second.
async function run(prompt, n) {
    await sequence.clearHistory();
    const start = performance.now();
    let first, last, count = 0;
    for await (const _ of sequence.evaluate(prompt, {temperature: 0, yieldEogToken: true})) {
        last = performance.now();
        first ??= last;
        if (count++ === n) break;
    }
    return {prefill: prompt.length / (first - start) * 1000, decode: (count - 1) / (last - first) * 1000};
}

await run(prompt.slice(0, 8), 4);
const speeds = [];
for (let i = 0; i < runs; i++) speeds.push(await run(prompt, tokens));
const npm = JSON.parse(readFileSync(new URL("node_modules/node-llama-cpp/package.json", import.meta.url))).version;
console.log(JSON.stringify({
    engine: `llama.cpp ${llama.llamaCppRelease.release} (node-llama-cpp ${npm})`,
    device: gpu ? (await llama.getGpuDeviceNames()).join(", ") : `CPU, ${context.currentThreads} threads`,
    onGpu: llama.gpu === gpu && (!gpu || model.gpuLayers > 0),
    prefill: speeds.map(s => s.prefill),
    decode: speeds.map(s => s.decode),
}));
await llama.dispose();
