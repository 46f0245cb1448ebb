// Small messages below the header. Each has a name, and a new one of the same name takes its place.
import {$, el, iconButton} from "./dom.js";

/**
 * @param {string} name
 * @param {string} text
 * @param {{action?: string, onAction?: () => void, seconds?: number}} [options]
 */
export function notice(name, text, {action, onAction, seconds} = {}) {
    dismiss(name);
    const item = el("div", {class: "notice", id: `notice-${name}`},
        el("p", {}, text),
        action ? el("button", {type: "button", class: "link", onclick: onAction}, action) : null,
        iconButton("close", "Dismiss", {class: "quiet icon-button", onclick: () => item.remove()}));
    $("notices").append(item);
    if (seconds) setTimeout(() => item.remove(), seconds * 1000);
}

/** @param {string} name */
export function dismiss(name) {
    $(`notice-${name}`)?.remove();
}
