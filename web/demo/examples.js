// What the model is to learn: rows of prompts and answers, or a text or JSONL that was pasted.
import {$, el, iconButton} from "./dom.js";
import {count} from "./format.js";
import {emit, on, state} from "./state.js";

const samples = {
    chat: [
        ["What is your name?", "I am Pip, a peregrine falcon, and I live on the old clock tower."],
        ["How fast can you fly?", "In a dive I pass 300 kilometres an hour. On the way to breakfast I am slower."],
        ["What do you eat?", "Pigeons, mostly. They do not think much of me."],
        ["Where do you live?", "On the ledge of the old clock tower, just above the six."],
    ],
    text: [
        ["Pip the falcon lived", "on the ledge of the old clock tower, just above the six."],
        ["Every morning Pip", "flew three times around the tower and sang a song that only the bells understood."],
        ["The pigeons said to Pip,", "'You are too fast for us. Will you not come to tea instead?'"],
        ["In the evening Pip", "told the moon what he had seen, and the moon told nobody."],
    ],
};

/** Sample pairs that suit the model. */
const fitting = () => samples[state.model && !state.model.info.hasChatTemplate ? "text" : "chat"];

const changed = () => emit("examples");

function addRow(prompt = "", answer = "", focus = false) {
    const first = el("textarea", {class: "row-prompt", rows: 2, placeholder: "Prompt", oninput: changed});
    const second = el("textarea", {class: "row-answer", rows: 2, placeholder: "Answer", oninput: changed});
    first.value = prompt;
    second.value = answer;
    const remove = iconButton("bin", "Remove", {class: "quiet icon-button", onclick() {
        const next = item.nextElementSibling ?? item.previousElementSibling;
        item.remove();
        number();
        changed();
        (next?.querySelector("textarea") ?? $("row-add")).focus();
    }});
    const item = el("li", {}, first, second, remove);
    $("rows").append(item);
    number();
    if (focus) first.focus();
}

// A screen reader hears which example a field belongs to.
function number() {
    [...$("rows").children].forEach((item, at) => {
        item.querySelector(".row-prompt").setAttribute("aria-label", `Prompt of example ${at + 1}`);
        item.querySelector(".row-answer").setAttribute("aria-label", `Answer of example ${at + 1}`);
        item.querySelector("button .sr").textContent = `Remove example ${at + 1}`;
    });
}

function pairs() {
    return [...$("rows").children].map(item => ({
        prompt: item.querySelector(".row-prompt").value.trim(),
        answer: item.querySelector(".row-answer").value.trim(),
    })).filter(({prompt, answer}) => prompt || answer);
}

function readRows() {
    const found = pairs();
    const lacking = found.findIndex(({prompt, answer}) => !prompt || !answer);
    if (lacking >= 0) throw new Error(`Example ${lacking + 1} lacks ${found[lacking].prompt ? "an answer" : "a prompt"}.`);
    return found;
}

function readLine(line, at) {
    let value;
    try {
        value = JSON.parse(line);
    } catch {
        throw new Error(`Line ${at + 1} is not JSON.`);
    }
    const {text, prompt, messages} = value ?? {};
    const answer = value?.answer ?? value?.completion;
    if (typeof text === "string") return {text};
    if (typeof prompt === "string" && typeof answer === "string") return {prompt, answer};
    if (messages?.length === 2 && messages[0].role === "user" && messages[1].role === "assistant") {
        return {prompt: String(messages[0].content), answer: String(messages[1].content)};
    }
    throw new Error(`Line ${at + 1} has neither "text", nor "prompt" and "answer", nor "messages" of a question and an answer.`);
}

// Paragraphs of a text, as many together as fit the context: a token is about three characters or more.
function pieces(text, context) {
    const result = [];
    for (const paragraph of text.split(/\n\s*\n/).map(part => part.trim()).filter(Boolean)) {
        const last = result.at(-1);
        if (last && last.text.length + paragraph.length < 3 * context) last.text += `\n\n${paragraph}`;
        else result.push({text: paragraph});
    }
    return result;
}

function readPaste(context) {
    const text = $("paste").value.replaceAll("\r", "");
    if (!text.trimStart().startsWith("{")) return pieces(text, context);
    return text.split("\n").map((line, at) => line.trim() ? readLine(line, at) : null).filter(line => line !== null);
}

const rowsShown = () => $("tune-rows").hidden === false;

/**
 * The examples, or an Error that says what is wrong with them.
 * @param {number} context tokens of an example, at most
 * @returns {({prompt: string, answer: string} | {text: string})[]}
 */
export function readExamples(context) {
    const found = rowsShown() ? readRows() : readPaste(context);
    if (state.model?.info.hasChatTemplate !== false) return found;
    // Without a template the answer follows the prompt as it stands, so the space between them is the page's matter.
    return found.map(one => "prompt" in one && !/\s$/.test(one.prompt) && !/^\s/.test(one.answer) ? {...one, answer: ` ${one.answer}`} : one);
}

/** A prompt to try what was learned: the first example's. */
export const firstPrompt = () => rowsShown() ? pairs()[0]?.prompt ?? "" : "";

function showCount() {
    try {
        const n = readExamples(Number($("tune-context").value)).length;
        $("example-count").textContent = `${count(n)} ${n === 1 ? "example" : "examples"}`;
    } catch (error) {
        $("example-count").textContent = error.message;
    }
}

function fillIn() {
    $("rows").replaceChildren();
    for (const [prompt, answer] of fitting()) addRow(prompt, answer);
    changed();
}

// Samples that nobody has touched follow the model: a chat model gets questions.
function onModel() {
    const now = JSON.stringify(pairs().map(({prompt, answer}) => [prompt, answer]));
    if ([samples.chat, samples.text].some(list => JSON.stringify(list) === now)) fillIn();
    showCount();
}

export function startExamples() {
    for (const radio of document.querySelectorAll("[name=tune-kind]")) {
        radio.addEventListener("change", () => {
            $("tune-rows").hidden = radio.value !== "rows";
            $("tune-paste").hidden = radio.value !== "paste";
            changed();
        });
    }
    $("row-add").addEventListener("click", () => {
        addRow("", "", true);
        changed();
    });
    $("row-samples").addEventListener("click", fillIn);
    $("paste").addEventListener("input", changed);
    $("tune-context").addEventListener("change", changed);
    on("examples", showCount);
    on("model", onModel);
    fillIn();
}
