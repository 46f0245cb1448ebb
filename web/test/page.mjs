// What the tests of the library share: the clone served whole, a page that has the library, and the references.
import {readFileSync} from "node:fs";
import {join, resolve} from "node:path";
import {serve, web} from "./browser.mjs";

/** The clone's folder. */
export const root = join(web, "..");

export const json = path => JSON.parse(readFileSync(resolve(root, path), "utf8"));

/** The built-in model, with the texts and ids that numpy finds. */
export const tales = {path: "models/tales-2m.Q8_0.gguf", prompts: json("tests/data/tales_reference.json").prompts};

/** Fetched by scripts/fetch-test-models.sh. */
export const smollm2 = {
    path: "tests/data/fetched/SmolLM2-135M-Instruct.Q4_1.gguf",
    prompts: json("tests/data/smollm2_reference.json").prompts,
};

const page = `<!doctype html><html lang="en"><title>test</title><link rel="icon" href="data:,">
<input type="file" multiple>
<script type="module">
import {Peregrine, PeregrineError} from "./web/src/peregrine.js";
Object.assign(window, {Peregrine, PeregrineError});
</script>`;

// What a worker finds in a browser that has less. The first lines of worker.js, which ask for nothing yet.
const lesser = `
const without = {"shader-f16": true, subgroups: true};
const has = GPUSupportedFeatures.prototype.has;
GPUSupportedFeatures.prototype.has = function (name) { return !without[name] && has.call(this, name); };
for (const name of ["maxStorageBufferBindingSize", "maxBufferSize"]) {
    const {get} = Object.getOwnPropertyDescriptor(GPUSupportedLimits.prototype, name);
    Object.defineProperty(GPUSupportedLimits.prototype, name, {get() { return Math.min(get.call(this), LIMIT); }});
}
`;

/**
 * Serves the clone, with a page at "/" that has window.Peregrine. Below "/lesser-N/" is the same for a browser that has neither
 * f16 nor subgroups, and buffers of N bytes.
 * @param {(request: any, response: any) => any} [intercept] sees requests first, as in `serve`
 */
export function serveLibrary(intercept) {
    return serve(root, {intercept: async (request, response) => {
        if (await intercept?.(request, response)) return true;
        const [, limit, path] = /^\/(?:lesser-(\d+)\/)?([^?]*)/.exec(request.url);
        if (path === "") {
            response.setHeader("Content-Type", "text/html").end(page);
            return true;
        }
        if (limit === undefined) return false;
        request.url = `/${path}`;
        if (!path.endsWith("/worker.js")) return false;
        const text = readFileSync(join(root, path), "utf8");
        response.setHeader("Content-Type", "text/javascript").end(lesser.replace("LIMIT", limit) + text);
        return true;
    }});
}

/**
 * Opens the page and waits for its library.
 * @param {import("./browser.mjs").Browser} browser
 * @param {string} url
 * @param {{allow?: RegExp[]}} [options] complaints that are to be expected
 */
export async function openPage(browser, url, options) {
    const page = await browser.page(url, options);
    await page.waitForFunction("window.Peregrine");
    return page;
}
