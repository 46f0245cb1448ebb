// The settings: a table, a form made of it, and their values, which localStorage keeps.
import {$, el} from "./dom.js";
import {explain} from "./errors.js";
import {count} from "./format.js";
import {notice} from "./notices.js";
import {emit, on, state, work} from "./state.js";

const KEY = "peregrine.settings";

// A value of null leaves it to the engine. Those with a slider are fractions.
const table = [
    {key: "temperature", group: "sampling", label: "Temperature", hint: "0 always takes the likeliest word; higher is more daring", min: 0, max: 2, step: 0.05, value: 0.8, slider: true},
    {key: "topP", group: "sampling", label: "Top-p", hint: "the likeliest words that together reach this probability; 1 is all", min: 0.01, max: 1, step: 0.01, value: 0.95, slider: true},
    {key: "minP", group: "sampling", label: "Min-p", hint: "drops words less likely than this share of the likeliest; 0 is none", min: 0, max: 1, step: 0.01, value: 0.05, slider: true},
    {key: "repeatPenalty", group: "sampling", label: "Repeat penalty", hint: "makes recent words less likely; 1 is off", min: 1, max: 2, step: 0.01, value: 1, slider: true},
    {key: "topK", group: "sampling", label: "Top-k", hint: "how many of the likeliest words are looked at; 0 is all", min: 0, max: 1000, step: 1, value: 40},
    {key: "seed", group: "sampling", label: "Seed", hint: "the same number gives the same answer; empty is a new one each time", min: 0, max: 4294967295, step: 1, value: null, empty: "random"},
    {key: "maxTokens", group: "length", label: "Answer length", hint: "tokens at most; a token is about three quarters of a word", min: 1, max: 32768, step: 1, value: null, empty: "automatic"},
    {key: "context", group: "length", label: "Context size", hint: "tokens that the model sees at once; more takes more memory", min: 16, max: 131072, step: 1, value: null, empty: "automatic"},
];

/** The values by key, and `system`, the system prompt. @type {Record<string, any>} */
export const settings = {system: ""};

function read() {
    let kept = {};
    try {
        kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    } catch {
        // storage is off, or holds something else
    }
    for (const {key, value, min, max} of table) {
        const number = kept?.[key];
        settings[key] = typeof number === "number" && number >= min && number <= max ? number : value;
    }
    if (typeof kept?.system === "string") settings.system = kept.system;
}

function write() {
    try {
        localStorage.setItem(KEY, JSON.stringify(settings));
    } catch {
        // storage is off: they last as long as the page
    }
}

/** What generate and chat take. @param {AbortSignal} signal */
export function generateOptions(signal) {
    const options = {signal};
    for (const key of ["temperature", "topK", "topP", "minP", "repeatPenalty", "seed"]) {
        if (settings[key] !== null) options[key] = settings[key];
    }
    // A model that continues texts seldom finds an end by itself.
    options.maxTokens = settings.maxTokens ?? (state.model.info.hasChatTemplate ? 1024 : 200);
    return options;
}

// A new context size holds for the model at once, or when it has finished; the conversation is read again into it.
let waiting = false;
async function applyContext() {
    const {model} = state;
    waiting = model && state.busy;
    if (!model || waiting) return;
    const wanted = settings.context ?? Math.min(4096, model.info.contextLength);
    if (wanted === model.info.context) return;
    try {
        await work("load", () => model.setContext(wanted));
        notice("settings", `The context is now ${count(wanted)} tokens.`, {seconds: 4});
    } catch (error) {
        const {title, detail} = explain(error);
        notice("settings", `${title} ${detail}`);
    }
    emit("model");
}

/** What shows each value in the form. @type {(() => void)[]} */
const fields = [];

function field(row) {
    const {key, label, hint, min, max, step, empty, slider} = row;
    const id = `set-${key}`;
    const number = el("input", {id, type: "number", min, max, step: slider ? "any" : step, placeholder: empty, inputmode: slider ? "decimal" : "numeric", "aria-describedby": `${id}-hint`});
    const range = slider && el("input", {type: "range", min, max, step, "aria-label": `${label}, slider`, tabindex: "-1"});
    const show = () => {
        number.value = settings[key] ?? "";
        if (range) range.value = settings[key];
    };
    function set(text) {
        const wanted = text === "" ? NaN : Number(text);
        settings[key] = Number.isFinite(wanted) ? Math.min(max, Math.max(min, slider ? wanted : Math.round(wanted))) : row.value;
        write();
        show();
    }
    number.addEventListener("change", () => {
        set(number.value);
        if (key === "context") applyContext();
    });
    if (range) range.addEventListener("input", () => set(range.value));
    fields.push(show);
    show();
    return el("div", {class: slider ? "field slider" : "field"},
        el("label", {for: id}, label), number, range || null, el("p", {class: "hint", id: `${id}-hint`}, hint));
}

function reset() {
    for (const {key, value} of table) settings[key] = value;
    settings.system = "";
    write();
    for (const show of fields) show();
    applyContext();
}

export function startSettings() {
    for (const row of table) $(`settings-${row.group}`).append(field(row));
    fields.push(() => $("system").value = settings.system);
    $("system").value = settings.system;
    $("system").addEventListener("input", () => {
        settings.system = $("system").value;
        write();
    });
    $("settings-form").addEventListener("submit", event => event.preventDefault());
    $("settings-reset").addEventListener("click", reset);
    on("busy", () => {
        if (waiting && !state.busy) applyContext();
    });
    on("model", () => {
        const longest = state.model?.info.contextLength;
        $("set-context-hint").textContent = table[7].hint + (longest ? `; this model knows ${count(longest)}` : "");
    });
}

read();
