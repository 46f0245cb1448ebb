// Loads a model, and shows how far it is. One model is held at a time: the old one is freed before, to have its memory.
import {Peregrine} from "./peregrine/src/peregrine.js";
import {$, announce, eachFrame, el} from "./dom.js";
import {showError} from "./errors.js";
import {bytes, count, time} from "./format.js";
import {dismiss, notice} from "./notices.js";
import {settings} from "./settings.js";
import {emit, isAbort, setModel, state, stop, work} from "./state.js";

const origins = {network: "from the network", cache: "from this device", file: "from your file"};
const stages = {header: "Reading the header", weights: "Loading the weights", pipelines: "Compiling shaders", ready: "Ready"};

let progress = null;
let quarter = 0;
const draw = eachFrame(() => {
    if (!progress) return;
    const {stage, loaded, total, bytesPerSecond, from} = progress;
    const bar = $("loading-bar");
    if (total > 0 && stage !== "header") bar.value = Math.min(1, loaded / total);
    else bar.removeAttribute("value");
    const parts = [stages[stage]];
    if (stage === "weights") {
        parts.push(`${bytes(loaded)} of ${bytes(total)}`, origins[from]);
        if (bytesPerSecond > 0) parts.push(`${bytes(bytesPerSecond)}/s`, `${time((total - loaded) / bytesPerSecond)} left`);
        const passed = Math.floor(4 * loaded / total);
        if (passed > quarter && passed < 4) announce(`${passed * 25} percent loaded`);
        quarter = Math.max(quarter, passed);
    } else if (total > 0) {
        parts.push(`${count(loaded)} of ${count(total)}`);
    }
    $("loading-detail").textContent = parts.join(" · ");
});

function show(name) {
    progress = null;
    quarter = 0;
    $("loading").classList.remove("failed");
    $("loading-title").textContent = `Loading ${name}`;
    $("loading-detail").textContent = "Starting the engine";
    $("loading-bar").removeAttribute("value");
    $("loading-bar").hidden = false;
    $("loading-cancel").textContent = "Cancel";
    $("loading").hidden = false;
    announce(`Loading ${name}`);
}

function fail(name, error, again) {
    $("loading").classList.add("failed");
    const what = name[0].toUpperCase() + name.slice(1);
    $("loading-title").textContent = `${what} was not loaded`;
    $("loading-bar").hidden = true;
    $("loading-cancel").textContent = "Close";
    showError($("loading-detail"), error, el("button", {type: "button", id: "loading-again", onclick: again}, "Try again"));
    announce(`${what} was not loaded. ${$("loading-detail").textContent}`);
}

function onDevice({type, message}) {
    if (type === "lost") {
        notice("device", "The GPU was lost; loading again from the cache.");
    } else {
        notice("device", message || "The GPU is back.", {seconds: 4});
        emit("model");
    }
}

/**
 * @param {any} source what Peregrine.load takes
 * @param {string} name how it is called while it loads
 * @param {{cache?: boolean}} [options]
 */
export function loadModel(source, name, options = {}) {
    return work("load", async signal => {
        const old = state.model;
        setModel(null);
        show(name);
        dismiss("device");
        try {
            await old?.free();
            const model = await Peregrine.load(source, {
                ...options,
                context: settings.context ?? undefined,
                signal,
                onDevice,
                onProgress(now) {
                    progress = now;
                    draw();
                },
            });
            $("loading").hidden = true;
            setModel(model);
            announce(`${model.info.name} is loaded`);
        } catch (error) {
            if (isAbort(error)) {
                $("loading").hidden = true;
                announce("Loading was cancelled");
            } else {
                fail(name, error, () => loadModel(source, name, options));
            }
        } finally {
            progress = null;
            emit("store");
        }
    });
}

export function startLoading() {
    $("loading-cancel").addEventListener("click", () => {
        if (state.busy === "load") stop();
        else $("loading").hidden = true;
    });
}
