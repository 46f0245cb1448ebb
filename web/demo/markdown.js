// Markdown of a model, which may contain anything, as safe elements. Marked reads it, DOMPurify lets a short list of tags
// through, and a long answer is rendered block by block, so that each token costs only the block it belongs to.
import {Marked} from "./vendor/marked.js";
import DOMPurify from "./vendor/purify.js";
import {copy, el, iconButton} from "./dom.js";

const escape = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;").replaceAll('"', "&quot;");

const marked = new Marked({gfm: true, breaks: true, renderer: {
    html: ({text, block}) => block ? `<p>${escape(text.trim())}</p>` : escape(text), // a model that writes tags means to show them
    heading({tokens, depth}) {
        // One level for all: an answer's headings stand below the page's own, whatever level the model thinks of.
        return `<h3 class="h${depth}">${this.parser.parseInline(tokens)}</h3>`;
    },
    image({href, text}) {
        // An image from elsewhere would tell its server what is written here. It becomes a link.
        const source = escape(href);
        return href.startsWith("data:image/") ? `<img src="${source}" alt="${escape(text)}">` : `<a href="${source}">${escape(text || href)}</a>`;
    },
    checkbox: ({checked}) => checked ? "☑ " : "☐ ",
}});

const allowed = {
    ALLOWED_TAGS: ["p", "br", "hr", "strong", "em", "del", "code", "pre", "ul", "ol", "li", "blockquote", "h3", "table", "thead", "tbody", "tr", "th", "td", "a", "img"],
    ALLOWED_ATTR: ["href", "title", "class", "src", "alt", "align", "start"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
};

DOMPurify.addHook("afterSanitizeAttributes", node => {
    const element = /** @type {Element} */ (node);
    if (!/^(h[1-6]|language-[\w+#.-]+)$/.test(element.className)) element.removeAttribute("class");
    if (element.tagName === "IMG" && !element.getAttribute("src")?.startsWith("data:image/")) element.remove();
    if (element.tagName !== "A") return;
    if (/^(https?:|mailto:)/i.test(element.getAttribute("href") ?? "")) {
        element.setAttribute("target", "_blank");
        element.setAttribute("rel", "noopener noreferrer");
    } else {
        element.removeAttribute("href");
    }
});

// Code gets a head with its language and a button to copy it; what can be wider than the page can scroll.
function furnish(fragment) {
    for (const pre of fragment.querySelectorAll("pre")) {
        const language = pre.querySelector("code")?.className.replace("language-", "") ?? "";
        const button = iconButton("copy", "Copy code", {class: "quiet icon-button copy-code", onclick: () => copy(pre.textContent, button)});
        const head = el("div", {class: "code-head"}, el("span", {}, language), button);
        const frame = el("div", {class: "code"}, head);
        pre.tabIndex = 0;
        pre.replaceWith(frame);
        frame.append(pre);
    }
    for (const table of fragment.querySelectorAll("table")) {
        const frame = el("div", {class: "table", tabindex: "0"});
        table.replaceWith(frame);
        frame.append(table);
    }
    return fragment;
}

function render(tokens) {
    return furnish(DOMPurify.sanitize(marked.parser(tokens), allowed));
}

/**
 * A place where a growing text is shown. Blocks that two others follow are finished and stay as they are; only what
 * comes after them is read and rendered again.
 * @param {HTMLElement} root
 */
export function markdownView(root) {
    let finished = 0; // characters of the text that are in finished blocks
    /** @type {ChildNode[]} */
    let open = [];
    return {
        /** @param {string} text the whole text so far */
        update(text) {
            const tail = text.slice(finished);
            const tokens = marked.lexer(tail);
            for (const node of open) node.remove();

            const blocks = tokens.map((token, at) => token.type === "space" ? -1 : at).filter(at => at >= 0);
            const whole = tokens.reduce((sum, token) => sum + token.raw.length, 0) === tail.length;
            if (whole && blocks.length > 2) {
                const done = tokens.splice(0, blocks[blocks.length - 2]);
                finished += done.reduce((sum, token) => sum + token.raw.length, 0);
                root.append(render(done));
            }
            const fragment = render(tokens);
            open = [...fragment.childNodes];
            root.append(fragment);
        },
    };
}
