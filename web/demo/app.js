// The page's start: asks whether the browser can do WebGPU, and sets up the parts or says what to do.
import {Peregrine} from "./peregrine/src/peregrine.js";
import {startAdapter} from "./adapter.js";
import {startChat} from "./chat.js";
import {showDevice, startDevice} from "./device.js";
import {$} from "./dom.js";
import {startExamples} from "./examples.js";
import {startLoading} from "./loading.js";
import {startModels} from "./models.js";
import {keepOffline} from "./offline.js";
import {startSettings} from "./settings.js";
import {on, state} from "./state.js";
import {startStored} from "./stored.js";
import {startTabs} from "./tabs.js";
import {startTune} from "./tune.js";
import {showUnsupported} from "./unsupported.js";

function showName() {
    const {model, busy} = state;
    $("model-name").textContent = model ? model.info.name : busy === "load" ? "Loading …" : "No model";
    $("model-chip").dataset.state = model ? (busy ? "busy" : "ready") : "none";
    $("model-chip").title = model ? model.info.name : "Choose a model";
}

function startApp(adapter) {
    startTabs();
    startSettings();
    startModels();
    startStored();
    startLoading();
    startChat();
    startExamples();
    startTune();
    startAdapter();
    startDevice();
    showDevice(adapter);
    on("model", showName);
    on("busy", showName);
    showName();
    for (const id of ["main", "tabs", "model-chip", "device-toggle"]) $(id).hidden = false;
}

const support = await Peregrine.support().catch(error => ({webgpu: false, reason: String(error?.message ?? error)}));
if (support.webgpu) startApp(support.adapter);
else showUnsupported(support);
keepOffline();
