// Where models come from: built in, files, dropped files, links.
import {$, el} from "./dom.js";
import {loadModel} from "./loading.js";

const suggestions = [
    {name: "SmolLM2 135M Instruct", size: "105 MB", licence: "Apache 2.0", url: "https://huggingface.co/bartowski/SmolLM2-135M-Instruct-GGUF/resolve/main/SmolLM2-135M-Instruct-Q4_K_M.gguf"},
    {name: "SmolLM2 360M Instruct", size: "271 MB", licence: "Apache 2.0", url: "https://huggingface.co/bartowski/SmolLM2-360M-Instruct-GGUF/resolve/main/SmolLM2-360M-Instruct-Q4_K_M.gguf"},
    {name: "Qwen2.5 0.5B Instruct", size: "491 MB", licence: "Apache 2.0", url: "https://huggingface.co/Qwen/Qwen2.5-0.5B-Instruct-GGUF/resolve/main/qwen2.5-0.5b-instruct-q4_k_m.gguf"},
    {name: "Qwen3 0.6B", size: "639 MB", licence: "Apache 2.0", url: "https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/resolve/main/Qwen3-0.6B-Q8_0.gguf"},
    {name: "Llama 3.2 1B Instruct", size: "808 MB", licence: "Llama 3.2 Community", url: "https://huggingface.co/bartowski/Llama-3.2-1B-Instruct-GGUF/resolve/main/Llama-3.2-1B-Instruct-Q4_K_M.gguf"},
];

const builtin = new URL("models/tales-2m.Q8_0.gguf", document.baseURI);

// The service worker keeps the built-in model with the page's own files, so it isn't stored a second time.
export const loadBuiltin = () => loadModel(builtin, "the built-in model", {cache: false});

/** @param {string} url */
export const fileName = url => decodeURIComponent(new URL(url, document.baseURI).pathname.split("/").pop() || url);

function loadFiles(list) {
    const files = [...list];
    if (files.length === 0) return;
    files.sort((a, b) => a.name.localeCompare(b.name));
    loadModel(files.length === 1 ? files[0] : files, files[0].name);
}

/** @param {string} text */
export function loadUrl(text) {
    const url = new URL(text);
    // The page of a file on the hub, which people copy from the address bar, is not the file.
    if (url.hostname === "huggingface.co") url.pathname = url.pathname.replace("/blob/", "/resolve/");
    url.searchParams.delete("download");
    return loadModel(url, fileName(url.href));
}

function suggestion({name, size, licence, url}) {
    return el("li", {},
        el("div", {}, el("strong", {}, name), el("span", {class: "hint"}, `${size} · ${licence} licence`)),
        el("div", {class: "row"}, el("button", {type: "button", "aria-label": `Load ${name}`, onclick: () => loadUrl(url)}, "Load")));
}

// Files that are dragged over the page, wherever.
function startDrop() {
    const overlay = $("drop");
    const wanted = event => ["Files", "text/uri-list"].some(type => event.dataTransfer?.types.includes(type));
    addEventListener("dragenter", event => {
        if (wanted(event)) overlay.hidden = false;
    });
    addEventListener("dragleave", event => {
        if (!event.relatedTarget) overlay.hidden = true;
    });
    addEventListener("dragover", event => {
        if (wanted(event)) event.preventDefault();
    });
    addEventListener("drop", event => {
        overlay.hidden = true;
        if (!wanted(event)) return;
        event.preventDefault();
        const link = event.dataTransfer.getData("text/uri-list").split("\n")[0].trim();
        if (event.dataTransfer.files.length) loadFiles(event.dataTransfer.files);
        else if (URL.canParse(link)) loadUrl(link);
    });
}

export function startModels() {
    for (const button of document.querySelectorAll(".load-builtin")) button.addEventListener("click", loadBuiltin);
    $("file").addEventListener("change", event => {
        loadFiles(event.target.files);
        event.target.value = ""; // so that the same file can be chosen again
    });
    $("url-form").addEventListener("submit", event => {
        event.preventDefault();
        loadUrl($("url").value.trim());
    });
    $("suggestions").append(...suggestions.map(suggestion));
    startDrop();
}
