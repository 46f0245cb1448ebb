// Peregrine (as it is, and with --exact) and llama.cpp side by side on one model: both on the Vulkan device, and llama.cpp
// on the CPU for scale.
//   node benches/compare/compare.mjs MODEL [-p PROMPT_TOKENS=128] [-n TOKENS=64] [-r ROUNDS=3]
// Rounds alternate between the engines, each a process of its own, so that a machine's slow minutes fall on all alike.
// Prints a Markdown table: medians with their range, and the median of each round's ratio. To hold both to one of several
// Vulkan devices, set VK_DRIVER_FILES.
import {spawnSync} from "node:child_process";
import {existsSync} from "node:fs";
import {cpus} from "node:os";
import {dirname, join, resolve} from "node:path";
import {fileURLToPath} from "node:url";
import {parseArgs} from "node:util";

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, "..", "..");
const option = (short, value) => ({type: "string", short, default: value});
const {values, positionals: [model]} = parseArgs({
    allowPositionals: true,
    options: {prompt: option("p", "128"), tokens: option("n", "64"), rounds: option("r", "3")},
});
if (!model) throw new Error("usage: node compare.mjs MODEL [-p PROMPT_TOKENS] [-n TOKENS] [-r ROUNDS]");

// What a command prints; its messages go through. A failure ends the comparison.
function output(command, args, options) {
    const {status, error, stdout} = spawnSync(command, args, {encoding: "utf8", stdio: ["ignore", "pipe", "inherit"], ...options});
    if (error) throw error;
    if (status !== 0) throw new Error(`${command} ${args.join(" ")} ended with ${status}`);
    return stdout;
}

output("cargo", ["build", "--release", "--quiet"], {cwd: root});
if (!existsSync(join(here, "node_modules"))) output("npm", ["install", "--ignore-scripts"], {cwd: here});

// One measured run of each engine, after its own warm-up.
const llamacpp = backend => {
    const args = [join(here, "llamacpp.mjs"), resolve(model), backend, values.prompt, values.tokens, "1"];
    // llama.cpp passes over software GPUs unless a device is asked for by its number.
    const run = JSON.parse(output("node", args, {env: {GGML_VK_VISIBLE_DEVICES: "0", ...process.env}}));
    if (!run.onGpu) throw new Error(`llama.cpp did not take the ${backend} backend`);
    return run;
};
const peregrine = (...flags) => {
    const args = ["bench", resolve(model), "-p", values.prompt, "-n", values.tokens, "--runs", "1", "--json", ...flags];
    const run = JSON.parse(output(join(root, "target", "release", "peregrine"), args));
    return {
        engine: ["Peregrine", run.version, ...flags].join(" "),
        device: `${run.device}, ${run.backend}, ${run.driver}`,
        prefill: run.prefill_runs,
        decode: run.decode_runs,
    };
};
const engines = [() => peregrine(), () => peregrine("--exact"), () => llamacpp("vulkan"), () => llamacpp("cpu")];

const rows = engines.map(() => ({prefill: [], decode: []}));
for (let round = 1; round <= values.rounds; round++) {
    console.error(`round ${round} of ${values.rounds}`);
    engines.forEach((run, i) => {
        const {engine, device, prefill, decode} = run();
        Object.assign(rows[i], {engine, device});
        rows[i].prefill.push(...prefill);
        rows[i].decode.push(...decode);
    });
}

const median = runs => {
    const sorted = [...runs].sort((a, b) => a - b), half = sorted.length / 2;
    return (sorted[Math.ceil(half) - 1] + sorted[Math.floor(half)]) / 2;
};
const speed = runs => `${median(runs).toFixed(1)} (${Math.min(...runs).toFixed(1)} to ${Math.max(...runs).toFixed(1)})`;
const ratio = (ours, row, kind) => median(ours[kind].map((speed, round) => speed / row[kind][round])).toFixed(2);
const ratios = (row, kind) => `${ratio(rows[0], row, kind)} (exact ${ratio(rows[1], row, kind)}) in ${kind}`;
console.log(`${model.split("/").pop()} on ${cpus()[0].model}, ${cpus().length} cores; ${values.rounds} rounds\n`);
console.log(`| engine | device | prefill of ${values.prompt}, tokens/s | decode of ${values.tokens}, tokens/s | Peregrine is faster by |`);
console.log("|---|---|---|---|---|");
for (const row of rows) {
    const faster = rows.indexOf(row) < 2 ? "" : `${ratios(row, "prefill")}, ${ratios(row, "decode")}`;
    console.log(`| ${row.engine} | ${row.device} | ${speed(row.prefill)} | ${speed(row.decode)} | ${faster} |`);
}
