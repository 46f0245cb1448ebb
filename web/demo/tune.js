// Training: its settings, its start and stop, and how it goes.
import {$} from "./dom.js";
import {lossCurve} from "./curve.js";
import {showError} from "./errors.js";
import {readExamples} from "./examples.js";
import {count, decimals, time} from "./format.js";
import {emit, isAbort, on, state, stop, work} from "./state.js";

const TINY = 50e6; // parameters; such models take, and need, a far higher learning rate

let curve;
let rateTouched = false;

const number = id => Number($(id).value);

function showStep({step, steps, loss, tokens, secondsLeft}) {
    $("tune-bar").value = step / steps;
    $("tune-step").textContent = `${count(step)} of ${count(steps)}`;
    $("tune-loss").textContent = decimals(loss, 3);
    $("tune-tokens").textContent = count(tokens);
    $("tune-left").textContent = time(secondsLeft);
}

async function train() {
    const {model} = state;
    if (!model || state.busy) return;
    $("tune-error").hidden = true;
    const context = number("tune-context");
    let examples;
    try {
        examples = readExamples(context);
        if (examples.length === 0) throw new Error("There is no example yet.");
    } catch (error) {
        $("tune-why").textContent = error.message;
        return;
    }
    const steps = number("tune-steps");
    const options = {rank: number("tune-rank"), alpha: 2 * number("tune-rank"), learningRate: number("tune-rate"), steps, context};

    await work("tune", async signal => {
        $("tune-run").hidden = false;
        $("tune-result").hidden = true;
        $("tune-bar").removeAttribute("value"); // the first step compiles shaders
        for (const id of ["tune-loss", "tune-left"]) $(id).textContent = "–";
        $("tune-step").textContent = "preparing";
        $("tune-tokens").textContent = "0";
        curve.start(steps);
        try {
            for await (const event of model.finetune(examples, {...options, signal})) {
                showStep(event);
                curve.add(event);
            }
        } catch (error) {
            if (!isAbort(error)) showError($("tune-error"), error);
        }
        $("tune-left").textContent = signal.aborted ? "stopped" : "–";
        if (!$("tune-bar").hasAttribute("value")) $("tune-bar").value = 0;
        curve.finish();
    });
    emit("adapter");
}

// Why training can't start, if it can't.
function obstacle() {
    if (!state.model) return "Load a model first.";
    if (state.busy === "answer") return "The model is writing.";
    if (state.busy === "load") return "A model is being loaded.";
    return "";
}

function onBusy() {
    const training = state.busy === "tune";
    const hadFocus = [$("tune-start"), $("tune-stop")].includes(document.activeElement);
    $("tune-start").hidden = training;
    $("tune-start").disabled = Boolean(obstacle());
    $("tune-stop").hidden = !training;
    $("tune-input").disabled = training;
    $("tune-settings").disabled = training;
    $("tune-why").textContent = training ? "" : obstacle();
    if (hadFocus) (training ? $("tune-stop") : $("tune-start")).focus();
}

function onModel() {
    onBusy();
    if (!state.model) {
        $("tune-run").hidden = true;
        return;
    }
    const {parameters, contextLength} = state.model.info;
    if (!rateTouched) $("tune-rate").value = parameters < TINY ? 0.01 : 0.0005;
    $("tune-context").value = Math.min(number("tune-context"), contextLength);
}

export function startTune() {
    curve = lossCurve($("curve"));
    $("tune-form").addEventListener("submit", event => {
        event.preventDefault();
        train();
    });
    $("tune-stop").addEventListener("click", stop);
    $("tune-rate").addEventListener("input", () => rateTouched = true);
    addEventListener("beforeunload", event => {
        if (state.busy === "tune") event.preventDefault();
    });
    on("busy", onBusy);
    on("model", onModel);
    on("examples", onBusy);
    onBusy();
}
