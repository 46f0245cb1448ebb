// One message of the conversation, as elements: the visitor's, and the model's while it is being written.
import {copy, el, iconButton} from "./dom.js";
import {showError} from "./errors.js";
import {count, decimals, took} from "./format.js";
import {markdownView} from "./markdown.js";

/** @param {string} text */
export function userMessage(text) {
    return el("article", {class: "message user", "aria-label": "You"}, el("div", {class: "body"}, text));
}

// "<think>..</think>answer": the thoughts, the answer, and whether it still thinks.
function split(text) {
    const match = /^\s*<think>([\s\S]*?)(<\/think>([\s\S]*))?$/.exec(text);
    return match ? {thoughts: match[1].trim(), answer: match[3] ?? "", thinking: !match[2]} : {thoughts: "", answer: text, thinking: false};
}

const reasons = {
    "length": "stopped at the answer length",
    "context": "stopped: the context is full",
    "aborted": "stopped",
};

// What is told of an answer below it.
function figures(stats) {
    const {tokensPerSecond, timeToFirstToken, contextUsed, context, tokens, seed, stop} = stats;
    return [
        `${decimals(tokensPerSecond)} tokens/s`,
        `first token after ${took(timeToFirstToken)}`,
        `${count(tokens)} ${tokens === 1 ? "token" : "tokens"}`,
        `${count(contextUsed)} of ${count(context)} of context`,
        seed === undefined || seed === null ? null : `seed ${seed}`,
        reasons[stop],
    ].filter(Boolean).join(" · ");
}

// A text that the model continues, shown as it is: what was given, then what the model told.
function plainView(root, given) {
    const told = el("span", {class: "told"});
    root.classList.add("story");
    root.append(el("span", {class: "given"}, given), told);
    return {update: text => told.textContent = text};
}

/**
 * The model's message. `given` makes it the continuation of a text, not an answer in Markdown.
 * @param {{given?: string, onAgain: () => void, onMore?: () => void, onDrawn: () => void}} options
 */
export function modelMessage({given, onAgain, onMore, onDrawn}) {
    let text = "";
    let drawAt = 0;
    let waiting = false;

    const body = el("div", {class: "body"});
    const thoughts = el("p", {});
    const thinking = el("summary", {}, "Thoughts");
    const thoughtBox = el("details", {class: "thoughts", hidden: true}, thinking, thoughts);
    const state = el("p", {class: "state numbers"}, el("span", {class: "pulse"}), el("span", {}, "Reading"));
    const error = el("div", {class: "error", role: "alert", hidden: true});
    const stats = el("p", {class: "stats numbers"});
    const copyButton = iconButton("copy", "Copy", {class: "quiet icon-button copy", onclick: () => copy(result(), copyButton)});
    const actions = el("div", {class: "actions"}, copyButton,
        iconButton("again", "Regenerate", {class: "quiet icon-button regenerate", onclick: onAgain}),
        onMore ? iconButton("more", "Continue", {class: "quiet continue", shown: true, onclick: onMore}) : null,
        stats);
    actions.hidden = true;
    const element = el("article", {class: "message assistant writing", "aria-label": "Model", "aria-busy": "true"},
        thoughtBox, body, state, error, actions);
    const view = given === undefined ? markdownView(body) : plainView(body, given);

    const result = () => given === undefined ? split(text).answer.trim() : given + text;

    function draw() {
        const parts = given === undefined ? split(text) : {thoughts: "", answer: text, thinking: false};
        thoughtBox.hidden = !parts.thoughts;
        thinking.textContent = parts.thinking ? "Thinking …" : "Thoughts";
        if (thoughts.textContent !== parts.thoughts) thoughts.textContent = parts.thoughts;
        view.update(parts.answer);
        onDrawn();
    }

    // In the next frame; for a long message ten times a second, as reading and laying it out take longer.
    function schedule() {
        if (waiting) return;
        waiting = true;
        const pause = text.length > 4000 ? Math.max(0, drawAt + 100 - performance.now()) : 0;
        setTimeout(() => requestAnimationFrame(() => {
            if (!waiting) return; // it was finished meanwhile
            waiting = false;
            drawAt = performance.now();
            draw();
        }), pause);
    }

    return {
        element,
        get text() {
            return text;
        },
        result,
        /** @param {number} done @param {number} total */
        onPrompt(done, total) {
            state.lastChild.textContent = total > 0 ? `Reading ${count(done)} of ${count(total)} tokens` : "Reading";
        },
        /** @param {string} piece */
        push(piece) {
            text += piece.replaceAll("\r", "");
            state.hidden = true;
            schedule();
        },
        finish(figuresOfAnswer) {
            waiting = false;
            draw();
            state.hidden = true;
            actions.hidden = !text;
            if (figuresOfAnswer) stats.textContent = figures(figuresOfAnswer);
            element.classList.remove("writing");
            element.removeAttribute("aria-busy");
            onDrawn();
        },
        fail(problem) {
            showError(error, problem, el("button", {type: "button", class: "again", onclick: onAgain}, "Try again"));
            onDrawn();
        },
    };
}
