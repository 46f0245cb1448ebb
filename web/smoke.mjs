// Loads what web/build.sh made into Node.js, which has no GPU, and calls what needs none.
import assert from "node:assert/strict";
import {readFileSync} from "node:fs";
import test from "node:test";
import {initSync, inspect, version} from "./pkg/peregrine.js";

const file = path => readFileSync(new URL(path, import.meta.url));
initSync({module: file("pkg/peregrine_bg.wasm")});

test("the module tells its version", () => {
    const [, expected] = /^version = "(.*)"/m.exec(file("../Cargo.toml"));
    assert.equal(version(), expected);
});

test("the built-in model is read", () => {
    const card = JSON.parse(inspect(file("../models/tales-2m.Q8_0.gguf")));
    assert.equal(card.architecture, "llama");
    assert.equal(card.vocab_size, 2048);
});

test("bytes that are no model give an error, not a trap", () => {
    assert.throws(() => inspect(new TextEncoder().encode("<!DOCTYPE html><html>")), /not a GGUF model/);
    assert.throws(() => inspect(file("../models/tales-2m.Q8_0.gguf").subarray(0, 1000)), /truncated/);
});
