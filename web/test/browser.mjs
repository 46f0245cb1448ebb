// What the browser tests share: Chromium with WebGPU on its software GPU, and pages that may not complain.
import {existsSync, mkdtempSync} from "node:fs";
import {rm} from "node:fs/promises";
import {tmpdir} from "node:os";
import {join} from "node:path";
import {fileURLToPath} from "node:url";
import {chromium} from "playwright-core";
import {serve} from "../server.mjs";

export {serve};

/** The folder web/, ends in a slash. */
export const web = fileURLToPath(new URL("..", import.meta.url));

const programs = [
    "/usr/bin/chromium", "/usr/bin/google-chrome", "/usr/bin/google-chrome-stable", "/usr/bin/chromium-browser",
    "/snap/bin/chromium", "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
];

const chromiumArguments = [
    "--no-sandbox", "--no-first-run", "--disable-quic", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader", "--enable-features=Vulkan",
    "--disable-vulkan-surface",
];

/**
 * Starts Chromium with a profile of its own, which `close` removes; a `profile` that is given is kept, so that a second
 * launch finds what the first has stored.
 * @param {{profile?: string, args?: string[]} & import("playwright-core").BrowserContextOptions} [options] the other
 *     options are Playwright's, such as `viewport` or `colorScheme`
 * @returns {Promise<Browser>}
 */
export async function launch({profile, args = [], ...options} = {}) {
    const executablePath = programs.find(path => existsSync(path));
    if (!executablePath) {
        throw new Error(`Chromium is not installed: none of ${programs.join(", ")} is there. Debian: apt install chromium`);
    }
    const folder = profile ?? newProfile();
    const context = await chromium.launchPersistentContext(folder, {
        executablePath, headless: true, args: [...chromiumArguments, ...args], ...options,
    });
    return new Browser(context, profile ? undefined : folder);
}

/** A new folder for `launch`'s profile; `removeProfile` it at the end. */
export const newProfile = () => mkdtempSync(join(tmpdir(), "peregrine-"));

/** Chromium's processes may still write there for a moment. */
export const removeProfile = folder => rm(folder, {recursive: true, force: true, maxRetries: 20, retryDelay: 100});

export class Browser {
    #temporary;
    #problems = [];

    constructor(context, temporary) {
        /** @type {import("playwright-core").BrowserContext} */
        this.context = context;
        this.#temporary = temporary;
    }

    /**
     * Opens a page. Its errors and warnings, and those of its workers, make `check` and `close` fail, but for those that
     * match one of `allow`.
     * @param {string} url
     * @param {{allow?: RegExp[]}} [options] more may be added to `allow` later
     * @returns {Promise<import("playwright-core").Page>}
     */
    async page(url, {allow = []} = {}) {
        const page = await this.context.newPage();
        const note = text => allow.some(pattern => pattern.test(text)) || this.#problems.push(text);
        page.on("console", message => {
            // A page without an icon is asked for one all the same.
            if (!["error", "warning"].includes(message.type()) || message.location().url.endsWith("/favicon.ico")) return;
            note(`console ${message.type()}: ${message.text()} (${message.location().url})`);
        });
        page.on("pageerror", error => note(`uncaught: ${error.stack ?? error}`));
        page.on("crash", () => note("the page crashed"));
        await page.goto(url);
        return page;
    }

    /** Fails if a page has complained since the last check. */
    check() {
        const problems = this.#problems.splice(0);
        if (problems.length) throw new Error(`pages complained:\n${problems.join("\n")}`);
    }

    async close() {
        await this.context.close();
        if (this.#temporary) await removeProfile(this.#temporary);
        this.check();
    }
}
