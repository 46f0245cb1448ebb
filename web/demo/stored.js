// The models that are kept on this device: a list, the room they take, and whether the browser may clear them.
import {Peregrine} from "./peregrine/src/peregrine.js";
import {$, announce, el, iconButton} from "./dom.js";
import {explain} from "./errors.js";
import {bytes} from "./format.js";
import {loadModel} from "./loading.js";
import {on} from "./state.js";

function row({url, name, size, complete, loaded, date}) {
    const part = complete ? bytes(size) : `${bytes(loaded)} of ${bytes(size)} so far`;
    const from = URL.canParse(url) ? new URL(url).hostname : "";
    const problem = el("span", {class: "hint warn"});
    async function remove() {
        try {
            await Peregrine.cache.delete(url);
            announce(`${name} is deleted`);
            await refresh();
            $("panel-models").focus();
        } catch (error) {
            problem.textContent = explain(error).detail;
        }
    }
    return el("li", {},
        el("div", {}, el("strong", {}, name), el("span", {class: "hint"}, [part, from, date?.slice(0, 10)].filter(Boolean).join(" · ")), problem),
        el("div", {class: "row"},
            el("button", {type: "button", "aria-label": `${complete ? "Load" : "Go on with"} ${name}`, onclick: () => loadModel(url, name)}, complete ? "Load" : "Go on"),
            iconButton("bin", `Delete ${name}`, {class: "quiet icon-button", onclick: remove})));
}

async function showRoom() {
    const {usage, quota, persisted} = await Peregrine.cache.estimate();
    $("quota").max = quota || 1;
    $("quota").value = usage;
    $("quota").title = `${bytes(usage)} of ${bytes(quota)}`;
    $("quota-label").textContent = `${bytes(usage)} in use of ${bytes(quota)} that the browser lets this page have`;
    $("persist").disabled = persisted;
    $("persist").textContent = persisted ? "Kept for good" : "Keep on this device";
    $("persist-note").textContent = persisted
        ? "The browser will not clear these files by itself."
        : "When the device runs short of room, the browser may clear these files. “Keep on this device” asks it not to.";
}

async function persist() {
    const granted = await Peregrine.cache.persist();
    await showRoom();
    if (!granted) $("persist-note").textContent = "The browser did not agree. Some agree once a page is a bookmark, is installed, or is used often.";
    announce($("persist-note").textContent);
}

async function refresh() {
    try {
        const list = await Peregrine.cache.list();
        $("cache-list").replaceChildren(...list.map(row));
        $("cache-list").hidden = list.length === 0;
        $("cache-empty").hidden = list.length > 0;
        await showRoom();
    } catch (error) {
        $("cache-empty").hidden = false;
        $("cache-empty").textContent = `Models cannot be kept in this browser: ${explain(error).detail}`;
    }
}

export function startStored() {
    $("persist").addEventListener("click", persist);
    $("tab-models").addEventListener("click", refresh);
    on("store", refresh);
    refresh();
}
