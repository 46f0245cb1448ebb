// Every kernel in Chrome's own compiler, which is stricter than naga: the WGSL of target/tmp/shaders.json, which
// tests/shaders.rs writes. Pipelines are left to the other tests: a software GPU takes minutes for all.
import assert from "node:assert/strict";
import test from "node:test";
import {launch} from "./browser.mjs";
import {json, openPage, serveLibrary} from "./page.mjs";

test("every kernel compiles in the browser", async () => {
    const kernels = json(`${process.env.CARGO_TARGET_DIR ?? "target"}/tmp/shaders.json`);
    assert.ok(kernels.length > 200, `${kernels.length} kernels`);
    const server = await serveLibrary();
    const browser = await launch();
    try {
        const page = await openPage(browser, server.url, {allow: [/broken|WGSL/]});
        const {faults, broken} = await page.evaluate(async kernels => {
            const adapter = await navigator.gpu.requestAdapter();
            const device = await adapter.requestDevice({requiredFeatures: ["subgroups"]});
            const compile = async ({name, wgsl}) => {
                const module = device.createShaderModule({code: wgsl});
                const {messages} = await module.getCompilationInfo();
                const errors = messages.filter(({type}) => type === "error").map(({lineNum, message}) => `${lineNum}: ${message}`);
                return errors.length ? `${name}: ${errors.join("; ")}` : null;
            };
            const broken = await compile({name: "broken", wgsl: "fn broken( {"});
            const faults = [];
            for (const kernel of kernels) faults.push(await compile(kernel));
            return {faults: faults.filter(Boolean), broken};
        }, kernels);
        assert.equal(faults.length, 0, `${faults.length} faults:\n${faults.slice(0, 20).join("\n")}`);
        assert.match(broken, /broken: 1: /);
        browser.check();
    } finally {
        await browser.close().catch(() => {});
        await server.close();
    }
});
