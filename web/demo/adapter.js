// What a training run left: an adapter, to be switched on and off, tried beside the bare model, and taken home.
import {$, announce, download} from "./dom.js";
import {explain} from "./errors.js";
import {firstPrompt} from "./examples.js";
import {count} from "./format.js";
import {notice} from "./notices.js";
import {emit, isAbort, on, state, stop, work} from "./state.js";

const LENGTH = 60; // tokens of a trial

function complain(error) {
    const {title, detail} = explain(error);
    notice("adapter", `${title} ${detail}`);
}

async function use(wanted) {
    try {
        await work("load", () => state.model.useAdapter(wanted));
    } catch (error) {
        complain(error);
    }
    emit("adapter");
}

// Greedily, so that nothing but the adapter makes the difference.
function pieces(prompt, signal) {
    const options = {temperature: 0, maxTokens: LENGTH, signal};
    const {model} = state;
    return model.info.hasChatTemplate ? model.chat([{role: "user", content: prompt}], options) : model.generate(prompt, options);
}

async function trial(prompt) {
    const before = state.model.adapter.enabled;
    $("try-answers").hidden = false;
    $("try-off").textContent = "";
    $("try-on").textContent = "";
    await work("answer", async signal => {
        $("try").textContent = "Stop";
        try {
            for (const [place, enabled] of [["try-off", false], ["try-on", true]]) {
                await state.model.useAdapter(enabled);
                for await (const piece of pieces(prompt, signal)) {
                    $(place).append($(place).textContent ? piece : piece.trimStart());
                }
            }
            announce(`Without the adapter: ${$("try-off").textContent}. With the adapter: ${$("try-on").textContent}`);
        } catch (error) {
            if (!isAbort(error)) complain(error);
        } finally {
            await state.model?.useAdapter(before).catch(complain);
            $("try").textContent = "Try it";
        }
    });
    emit("adapter");
}

async function save(format) {
    try {
        const files = await state.model.exportAdapter(format);
        for (const {name, blob} of files) download(name, blob);
        announce(`Downloaded ${files.map(file => file.name).join(" and ")}`);
    } catch (error) {
        complain(error);
    }
}

function show() {
    const adapter = state.model?.adapter;
    $("tune-result").hidden = !adapter?.trained || state.busy === "tune";
    if (!adapter?.trained) return;
    $("adapter-on").checked = adapter.enabled;
    $("adapter-info").textContent = [
        `An adapter of rank ${adapter.rank}`,
        adapter.steps ? `after ${count(adapter.steps)} ${adapter.steps === 1 ? "step" : "steps"}` : "",
        "is kept until you train again or load another model.",
    ].filter(Boolean).join(" ");
    for (const id of ["adapter-on", "export-gguf", "export-peft"]) $(id).disabled = Boolean(state.busy);
    if (!$("try-prompt").value) $("try-prompt").value = firstPrompt();
}

export function startAdapter() {
    $("adapter-on").addEventListener("change", event => use(event.target.checked));
    $("try-form").addEventListener("submit", event => {
        event.preventDefault();
        if (state.busy === "answer") stop();
        else if (!state.busy) trial($("try-prompt").value);
    });
    $("export-gguf").addEventListener("click", () => save("gguf"));
    $("export-peft").addEventListener("click", () => save("peft"));
    on("adapter", show);
    on("busy", show);
    on("model", () => {
        $("try-prompt").value = "";
        $("try-answers").hidden = true;
        show();
    });
}
