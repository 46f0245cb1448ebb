// The panel at the side: the model, its last answer, the memory in use, and the GPU.
import {$, el} from "./dom.js";
import {bytes, count, decimals, mib, parameters, took} from "./format.js";
import {on, state} from "./state.js";

const yes = value => value ? "yes" : "no";

function fill(id, rows) {
    $(id).replaceChildren(...rows.filter(([, value]) => value !== undefined && value !== null && value !== "")
        .map(([term, value]) => el("div", {}, el("dt", {}, term), el("dd", {}, String(value)))));
}

function showModel() {
    const info = state.model?.info;
    fill("card-model", info ? [
        ["Name", info.name],
        ["From", info.source],
        ["Architecture", `${info.architecture}, ${info.blockCount} blocks of ${count(info.embeddingLength)}`],
        ["Parameters", parameters(info.parameters)],
        ["Format", info.format],
        ["Size", bytes(info.bytes)],
        ["Vocabulary", count(info.vocabSize)],
        ["Context", `${count(info.context)} of ${count(info.contextLength)}`],
        ["Chat template", yes(info.hasChatTemplate)],
        ["Adapter", state.model.adapter?.trained ? (state.model.adapter.enabled ? "on" : "off") : "none"],
    ] : [["Name", "none is loaded"]]);
}

function subgroups({subgroups: has, subgroupSize: size}) {
    if (!has) return "no";
    return size?.[0] === size?.[1] ? `of ${size?.[0]}` : `of ${size[0]} to ${size[1]}`;
}

/** @param {any} gpu the card that Peregrine gives */
export function showDevice(gpu) {
    if (!gpu) return;
    fill("card-device", [
        ["Adapter", gpu.name],
        ["Vendor", [gpu.vendor, gpu.architecture].filter(Boolean).join(", ")],
        ["Kind", gpu.software ? "software (slow)" : "hardware"],
        ["f16", yes(gpu.f16)],
        ["Subgroups", subgroups(gpu)],
        ["Largest buffer", mib(gpu.maxBufferSize)],
        ["Largest binding", mib(gpu.maxBindingSize)],
        ["Workgroup memory", `${decimals(gpu.maxWorkgroupStorage / 1024, 0)} KiB`],
    ]);
}

function showStats(stats) {
    fill("card-answer", stats?.tokens > 0 ? [
        ["Speed", `${decimals(stats.tokensPerSecond)} tokens/s`],
        ["First token", took(stats.timeToFirstToken)],
        ["Answer", `${count(stats.tokens)} tokens`],
        ["Prompt", `${count(stats.promptTokens)} tokens, ${count(stats.newPromptTokens)} new`],
        ["Context", `${count(stats.contextUsed)} of ${count(stats.context)}`],
    ] : [["Speed", "–"]]);
    fill("card-memory", stats ? [["GPU", mib(stats.gpuBytes)], ["WebAssembly", mib(stats.wasmBytes)]] : [["GPU", "–"], ["WebAssembly", "–"]]);
}

async function onModel() {
    showModel();
    showDevice(state.model?.info.gpu);
    showStats(state.model ? await state.model.stats().catch(() => null) : null);
}

// A column where there is room for one; else a sheet over the page.
const wide = matchMedia("(min-width: 1100px)");

function open(wanted, focus = false) {
    $("device").hidden = !wanted;
    $("device-toggle").setAttribute("aria-expanded", String(wanted));
    document.documentElement.classList.toggle("device-open", wanted);
    if (focus) (wanted ? $("device") : $("device-toggle")).focus();
}

export function startDevice() {
    $("device-toggle").addEventListener("click", () => open($("device").hidden, true));
    $("device-close").addEventListener("click", () => open(false, true));
    $("device").addEventListener("keydown", event => {
        if (event.key === "Escape" && !wide.matches) open(false, true);
    });
    addEventListener("pointerdown", event => {
        const inside = $("device").contains(event.target) || $("device-toggle").contains(event.target);
        if (!inside && !wide.matches && !$("device").hidden) open(false);
    });
    wide.addEventListener("change", () => open(wide.matches));
    open(wide.matches);
    on("model", onModel);
    on("adapter", showModel);
    on("stats", showStats);
    onModel();
}
