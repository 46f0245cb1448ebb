// Loads the module that web/build.sh made into Node.js, which has no GPU, and calls what needs none.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import {join} from "node:path";
import test from "node:test";
import {Engine, initSync, version} from "../pkg/peregrine.js";
import {root, tales} from "./page.mjs";

const bytes = readFileSync(join(root, tales.path));
initSync({module: readFileSync(join(root, "web/pkg/peregrine_bg.wasm"))});

/** A file as the engine sees one. */
const part = bytes => ({
    name: "model.gguf",
    size: bytes.length,
    read: async (offset, length) => bytes.subarray(offset, offset + length),
});

test("the module tells its version", () => {
    const [, expected] = /^version = "(.*)"/m.exec(readFileSync(join(root, "Cargo.toml"), "utf8"));
    assert.equal(version(), expected);
});

test("the built-in model is opened, and texts become the reference's tokens", async () => {
    const engine = await Engine.open([part(bytes)]);
    const card = JSON.parse(engine.card());
    assert.equal(card.architecture, "llama");
    assert.equal(card.vocabSize, 2048);
    for (const {prompt, token_ids} of tales.prompts) assert.deepEqual([...engine.tokenize(prompt, true, true)], token_ids);
});

test("what is no model gives an error, not a trap", async () => {
    const html = part(new TextEncoder().encode("<!DOCTYPE html><html>"));
    await assert.rejects(Engine.open([html]), {code: "bad-file", message: /not a GGUF model/});
    await assert.rejects(Engine.open([part(bytes.subarray(0, 1000))]), {code: "bad-file", message: /truncated/});
    const failing = {...part(bytes), read: () => Promise.reject(new DOMException("gone", "AbortError"))};
    await assert.rejects(Engine.open([failing]), {name: "AbortError"});
});
