// The conversation: kept in memory only. With a model that has no chat template, each message is a text that the model
// continues.
import {$, announce} from "./dom.js";
import {count} from "./format.js";
import {modelMessage, userMessage} from "./message.js";
import {generateOptions, settings} from "./settings.js";
import {emit, isAbort, on, state, stop, work} from "./state.js";
import {select, shown} from "./tabs.js";

/** @type {{role: "user" | "assistant", content: string}[]} */
let history = [];
let chats = true; // whether the conversation is one with a chat model
let follow = true; // whether the end of the conversation is kept in view

const list = $("messages");
const prompt = $("prompt");

function scrollDown() {
    if (follow) list.scrollTop = list.scrollHeight;
    $("latest").hidden = follow;
}

function onScroll() {
    follow = list.scrollHeight - list.scrollTop - list.clientHeight < 48;
    $("latest").hidden = follow;
}

// Writes a message of the model's, and gives what became of it.
async function write(message, pieces) {
    $("turns").append(message.element);
    follow = true;
    scrollDown();
    return await work("answer", async signal => {
        let failure = null;
        try {
            const options = {...generateOptions(signal), onPrompt: message.onPrompt};
            for await (const piece of pieces(options)) message.push(piece);
        } catch (error) {
            if (!isAbort(error)) failure = error;
        }
        const stats = failure ? null : await state.model?.stats().catch(() => null);
        message.finish(stats);
        if (failure) message.fail(failure);
        if (stats) emit("stats", stats);
        announce(failure ? "" : `${chats ? "Answer" : "Continued"}: ${message.element.querySelector(".body").textContent}`);
        return !failure;
    });
}

async function answer() {
    const system = settings.system.trim();
    const messages = [...system ? [{role: "system", content: system}] : [], ...history];
    const message = modelMessage({onAgain: answerAgain, onDrawn: scrollDown});
    await write(message, options => state.model.chat(messages, options));
    if (message.text) history.push({role: "assistant", content: message.text});
}

async function answerAgain() {
    if (!state.model || state.busy) return;
    if (history.at(-1)?.role === "assistant") history.pop();
    $("turns").lastElementChild?.remove();
    await answer();
}

async function continueText(given) {
    const again = () => {
        if (!state.model || state.busy) return;
        message.element.remove();
        continueText(given);
    };
    const more = () => {
        if (!state.model || state.busy) return;
        message.element.remove();
        continueText(message.result());
    };
    const message = modelMessage({given, onAgain: again, onMore: more, onDrawn: scrollDown});
    await write(message, options => state.model.generate(given, options));
}

async function send(text) {
    if (!state.model || state.busy || !text.trim()) return;
    prompt.value = "";
    fit();
    showWelcome(false);
    if (!chats) return continueText(text);
    if (history.at(-1)?.role === "user") history.pop(); // that one got no answer
    history.push({role: "user", content: text});
    $("turns").append(userMessage(text));
    await answer();
}

async function startAnew() {
    if (state.busy === "answer") await stop();
    history = [];
    $("turns").replaceChildren();
    $("context").textContent = "";
    showWelcome(true);
    prompt.focus();
}

function showWelcome(wanted = $("turns").childElementCount === 0) {
    $("welcome-none").hidden = !wanted || Boolean(state.model);
    $("welcome-chat").hidden = !wanted || !state.model || !chats;
    $("welcome-text").hidden = !wanted || !state.model || chats;
    $("new").disabled = wanted;
}

// The field grows with its text, up to the height that the style sheet allows.
function fit() {
    prompt.style.height = "auto";
    prompt.style.height = `${prompt.scrollHeight}px`;
}

function onBusy() {
    const answering = state.busy === "answer";
    const hadFocus = [$("send"), $("stop")].includes(document.activeElement);
    $("stop").hidden = !answering;
    $("send").hidden = answering;
    $("send").disabled = !state.model || Boolean(state.busy);
    if (hadFocus) prompt.focus();
    onWords();
}

// What the field is for right now.
function onWords() {
    const {model, busy} = state;
    $("prompt-label").textContent = chats ? "Message" : "Text to continue";
    $("send-label").textContent = chats ? "Send" : "Continue this text";
    $("new").textContent = chats ? "New conversation" : "New text";
    if (busy === "tune") prompt.placeholder = "The model is in training";
    else if (busy === "load" && !model) prompt.placeholder = "The model is being loaded";
    else if (!model) prompt.placeholder = "Load a model first";
    else prompt.placeholder = chats ? "Write a message" : "Begin a text";
}

function onModel() {
    const {model} = state;
    if (model && model.info.hasChatTemplate !== chats) {
        chats = model.info.hasChatTemplate;
        history = [];
        $("turns").replaceChildren();
    }
    $("context").textContent = "";
    showWelcome();
    onBusy();
    if (!model) return;
    if (shown() === "models") select("chat");
    // On a phone the keyboard would cover what is to be read.
    if (shown() === "chat" && matchMedia("(pointer: fine)").matches) prompt.focus();
}

export function startChat() {
    $("composer").addEventListener("submit", event => {
        event.preventDefault();
        send(prompt.value);
    });
    prompt.addEventListener("keydown", event => {
        if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
        event.preventDefault();
        send(prompt.value);
    });
    prompt.addEventListener("input", fit);
    $("stop").addEventListener("click", stop);
    addEventListener("keydown", event => {
        if (event.key === "Escape" && (state.busy === "answer" || state.busy === "tune")) stop();
    });
    $("new").addEventListener("click", startAnew);
    for (const opener of document.querySelectorAll(".opener")) {
        opener.addEventListener("click", () => send(opener.textContent));
    }
    list.addEventListener("scroll", onScroll, {passive: true});
    $("latest").addEventListener("click", () => {
        follow = true;
        scrollDown();
    });
    on("busy", onBusy);
    on("model", onModel);
    on("stats", stats => $("context").textContent = `${count(stats.contextUsed)} of ${count(stats.context)} tokens`);
    on("adapter", () => $("adapter-badge").hidden = !state.model?.adapter?.enabled);
}
