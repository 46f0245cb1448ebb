// Loads what web/build.sh made into Node.js, which has no GPU, and calls what needs none.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import test from "node:test";
import {initSync, inspect, tokenize, version} from "./pkg/peregrine.js";

const file = path => readFileSync(new URL(`../${path}`, import.meta.url));
const tales = file("models/tales-2m.Q8_0.gguf");
initSync({module: file("web/pkg/peregrine_bg.wasm")});

test("the module tells its version", () => {
    const [, expected] = /^version = "(.*)"/m.exec(file("Cargo.toml"));
    assert.equal(version(), expected);
});

test("the built-in model is read", () => {
    const card = JSON.parse(inspect(tales));
    assert.equal(card.architecture, "llama");
    assert.equal(card.vocab_size, 2048);
});

test("texts become the reference's tokens", () => {
    for (const {prompt, token_ids} of JSON.parse(file("tests/data/tales_reference.json")).prompts) {
        assert.deepEqual([...tokenize(tales, prompt)], token_ids);
    }
});

test("bytes that are no model give an error, not a trap", () => {
    assert.throws(() => inspect(new TextEncoder().encode("<!DOCTYPE html><html>")), /not a GGUF model/);
    assert.throws(() => inspect(tales.subarray(0, 1000)), /truncated/);
});
