// The tabs, by the ARIA pattern: arrows, Home and End move between them, and only the chosen one is in the order of Tab.
import {$} from "./dom.js";

const names = ["chat", "tune", "models", "settings"];

/** The name of the tab that is shown. */
export const shown = () => names.find(name => !$(`panel-${name}`).hidden);

/** @param {string} name */
export function select(name) {
    for (const other of names) {
        const tab = $(`tab-${other}`);
        tab.setAttribute("aria-selected", String(other === name));
        tab.tabIndex = other === name ? 0 : -1;
        $(`panel-${other}`).hidden = other !== name;
    }
}

function onKey(event) {
    const at = names.indexOf(shown() ?? "chat");
    const to = {ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: names.length - 1}[event.key];
    if (to === undefined) return;
    event.preventDefault();
    const name = names[(to + names.length) % names.length];
    select(name);
    $(`tab-${name}`).focus();
}

export function startTabs() {
    for (const name of names) $(`tab-${name}`).addEventListener("click", () => select(name));
    $("tabs").addEventListener("keydown", onKey);
    for (const button of document.querySelectorAll(".go-models")) {
        button.addEventListener("click", () => {
            select("models");
            $("tab-models").focus();
        });
    }
    $("model-chip").addEventListener("click", () => select("models"));
}
