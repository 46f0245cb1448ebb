// Short words for the DOM.

/** @param {string} id @returns {any} the element, which is in index.html */
export const $ = id => document.getElementById(id);

/**
 * Makes an element: el("button", {class: "link", onclick: go}, "Go").
 * Attributes that are false or null are left out; functions become properties.
 * @param {string} tag
 * @param {Record<string, any>} [attributes]
 * @param {...(Node | string | null | undefined)} children
 * @returns {any}
 */
export function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") element[name] = value;
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value != null) element.setAttribute(name, value);
    }
    element.append(...children.filter(child => child != null));
    return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element. @param {string} tag @param {Record<string, any>} [attributes] @param {...(Node | string)} children */
export function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
    element.append(...children);
    return element;
}

/** One of the icons at the end of index.html. @param {string} name */
export const icon = name => svg("svg", {"aria-hidden": "true"}, svg("use", {href: `#i-${name}`}));

/** A button of an icon and a word that is shown as well, or read aloud only. */
export function iconButton(name, label, {shown = false, ...attributes}) {
    const text = shown ? label : el("span", {class: "sr"}, label);
    return el("button", {type: "button", title: shown ? null : label, ...attributes}, icon(name), text);
}

/** Tells a screen reader, and nobody else. @param {string} text */
export function announce(text) {
    $("announce").textContent = text;
}

/** Copies a text; the button shows for a moment that it did. */
export async function copy(text, button) {
    const use = button.querySelector("use");
    const before = use.getAttribute("href");
    try {
        await navigator.clipboard.writeText(text);
        use.setAttribute("href", "#i-check");
        announce("Copied");
    } catch {
        announce("The browser did not allow copying");
        use.setAttribute("href", "#i-close");
    }
    setTimeout(() => use.setAttribute("href", before), 1500);
}

/** Gives the browser a file to save. @param {string} name @param {Blob} blob */
export function download(name, blob) {
    const link = el("a", {href: URL.createObjectURL(blob), download: name});
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}

/** Calls once in the next frame, however often it is asked to before. @param {() => void} draw */
export function eachFrame(draw) {
    let asked = false;
    return () => {
        if (asked) return;
        asked = true;
        requestAnimationFrame(() => {
            asked = false;
            draw();
        });
    };
}
