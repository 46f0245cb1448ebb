// Keeps the page usable without a network, and tells when a new version of it has come.
import {$} from "./dom.js";
import {notice} from "./notices.js";
import {state} from "./state.js";

// Whether a reload takes nothing from the visitor.
const untouched = () => !state.model && !state.busy && !$("prompt").value;

export async function keepOffline() {
    const workers = navigator.serviceWorker;
    if (!workers) return;
    let before = workers.controller;
    let asked = false; // by the visitor
    let atStart = false; // by this page, when it opened
    workers.addEventListener("controllerchange", () => {
        if (asked || (atStart && untouched())) location.reload();
        // This page still shows the old version; another page took the new one, or it came when something had begun.
        else if (before) notice("version", "A new version is in use.", {action: "Reload", onAction: () => location.reload()});
        before = workers.controller;
    });

    const registration = await workers.register("sw.js", {updateViaCache: "none"}).catch(error => {
        console.info(`Not kept for offline use: ${error.message}`);
        return null;
    });
    if (!registration) return;

    const offer = waiting => notice("version", "A new version is ready.", {
        action: "Reload",
        onAction() {
            asked = true;
            waiting.postMessage("take over");
        },
    });
    if (registration.waiting && before) {
        // It came during the last visit, so it is taken now; with other pages open, the visitor decides.
        atStart = true;
        offer(registration.waiting);
        registration.waiting.postMessage("take over if alone");
    }
    const watch = installing => installing?.addEventListener("statechange", () => {
        if (installing.state === "installed" && before) offer(installing);
    });
    watch(registration.installing); // the browser may have begun before this page asked
    registration.addEventListener("updatefound", () => watch(registration.installing));
}
