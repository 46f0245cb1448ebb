// The loss of a training run, drawn as it comes: a thin line for each step, a strong one for their running mean.
import {announce, eachFrame, svg} from "./dom.js";
import {count, decimals} from "./format.js";

const HEIGHT = 220;
const MARGIN = {left: 46, right: 14, top: 12, bottom: 38};
const SPEAK_EVERY = 10_000; // milliseconds

// Round numbers from about `low` to `high`, some four of them.
function ticks(low, high) {
    const rough = (high - low) / 4 || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough) ?? power;
    const result = [];
    for (let tick = Math.ceil(low / step) * step; tick <= high + step / 1e6; tick += step) result.push(tick);
    return {values: result, digits: Math.max(0, -Math.floor(Math.log10(step) + 1e-9))};
}

/** @param {HTMLElement} root */
export function lossCurve(root) {
    /** @type {{step: number, loss: number, mean: number}[]} */
    let points = [];
    let steps = 1;
    let spoken = 0;

    function summary() {
        if (points.length === 0) return "Loss by training step: nothing yet";
        const first = points[0];
        const last = points[points.length - 1];
        const lowest = points.reduce((least, {loss}) => Math.min(least, loss), Infinity);
        return `Loss by training step: ${decimals(first.loss, 2)} at step ${first.step}, ${decimals(last.loss, 2)} at step ${last.step} of ${steps}, lowest ${decimals(lowest, 2)}`;
    }

    function line(of, x, y) {
        const stride = Math.ceil(points.length / 600);
        return points.filter((_, at) => at % stride === 0 || at === points.length - 1)
            .map((point, at) => `${at ? "L" : "M"}${x(point.step).toFixed(1)} ${y(of(point)).toFixed(1)}`).join("");
    }

    function draw() {
        const width = root.clientWidth;
        if (width === 0 || points.length === 0) return;
        const values = points.map(point => point.loss);
        const top = values.reduce((a, b) => Math.max(a, b));
        const low = values.reduce((a, b) => Math.min(a, b));
        const room = (top - low) * 0.08 || 0.5;
        const [from, to] = [Math.max(0, low - room), top + room];
        const right = width - MARGIN.right;
        const bottom = HEIGHT - MARGIN.bottom;
        const x = step => MARGIN.left + (right - MARGIN.left) * (steps > 1 ? (step - 1) / (steps - 1) : 0.5);
        const y = loss => bottom - (bottom - MARGIN.top) * (loss - from) / (to - from);

        const parts = [];
        const vertical = ticks(from, to);
        for (const tick of vertical.values) {
            parts.push(svg("line", {class: "grid", x1: MARGIN.left, x2: right, y1: y(tick), y2: y(tick)}));
            parts.push(svg("text", {class: "tick", x: MARGIN.left - 8, y: y(tick) + 4, "text-anchor": "end"}, tick.toFixed(vertical.digits)));
        }
        for (const tick of ticks(1, steps).values.filter(Number.isInteger)) {
            parts.push(svg("text", {class: "tick", x: x(tick), y: bottom + 18, "text-anchor": "middle"}, count(tick)));
        }
        parts.push(svg("line", {class: "axis", x1: MARGIN.left, x2: right, y1: bottom, y2: bottom}));
        parts.push(svg("text", {class: "axis-label", x: (MARGIN.left + right) / 2, y: HEIGHT - 4, "text-anchor": "middle"}, "step"));
        const middle = (MARGIN.top + bottom) / 2;
        parts.push(svg("text", {class: "axis-label", x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})`}, "loss"));
        parts.push(svg("path", {class: "each", d: line(point => point.loss, x, y)}));
        parts.push(svg("path", {class: "mean", d: line(point => point.mean, x, y)}));
        const last = points[points.length - 1];
        parts.push(svg("circle", {class: "head", cx: x(last.step), cy: y(last.mean), r: 4}));

        const label = root.firstElementChild?.getAttribute("aria-label") ?? summary();
        root.replaceChildren(svg("svg", {role: "img", "aria-label": label, width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`}, ...parts));
    }

    function speak() {
        spoken = performance.now();
        root.firstElementChild?.setAttribute("aria-label", summary());
        announce(summary());
    }

    const drawSoon = eachFrame(draw);
    new ResizeObserver(drawSoon).observe(root);
    return {
        /** @param {number} expected */
        start(expected) {
            points = [];
            steps = expected;
            spoken = performance.now();
            root.replaceChildren();
        },
        add({step, loss}) {
            const before = points.at(-1)?.mean ?? loss;
            points.push({step, loss, mean: 0.8 * before + 0.2 * loss});
            drawSoon();
            if (performance.now() - spoken > SPEAK_EVERY) speak();
        },
        finish() {
            draw();
            speak();
        },
    };
}
