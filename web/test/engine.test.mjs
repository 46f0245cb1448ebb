// The library in Chromium: the texts that numpy finds, on every kind of device, from files, links and the store; answers
// that are stopped, devices that are lost, pages and models beside each other, adapters that are learned.
import assert from "node:assert/strict";
import {existsSync} from "node:fs";
import {join} from "node:path";
import test, {after, before} from "node:test";
import {launch} from "./browser.mjs";
import {openPage, root, serveLibrary, smollm2, tales} from "./page.mjs";

const TOKENS = 24;
let browser, server;

/** What the server does with the next requests for models: set by a test. */
let cut;

before(async () => {
    server = await serveLibrary((request, response) => request.url.endsWith(".gguf") && cut?.(request, response));
    browser = await launch();
});
after(async () => {
    await browser?.close();
    await server?.close();
});

/** Fills the page with a model. */
const load = (page, options = {}, url = tales.path) => page.evaluate(async ([url, options]) => {
    window.model = await Peregrine.load(`/${url}`, {context: 256, cache: false, ...options});
}, [url, options]);

/** A greedy text. */
const greedy = (page, prompt, maxTokens = TOKENS) => page.evaluate(
    ([prompt, maxTokens]) => model.generate(prompt, {temperature: 0, maxTokens}).text(), [prompt, maxTokens]);

const {prompt, numpy_f32_on_q8_0: {greedy32}} = tales.prompts[0];
/** What the built-in model continues its first prompt with. */
let expected;

test("the built-in model gives the reference's tokens and texts", async () => {
    const page = await openPage(browser, server.url);
    const events = await page.evaluate(async url => {
        const events = [];
        window.model = await Peregrine.load(url, {context: 256, cache: false, onProgress: event => events.push(event)});
        return events;
    }, tales.path);
    for (const {prompt, token_ids, numpy_f32_on_q8_0} of tales.prompts) {
        const ids = numpy_f32_on_q8_0.greedy32.slice(0, TOKENS);
        const text = await page.evaluate(ids => model.detokenize(ids), ids);
        assert.deepEqual(await page.evaluate(prompt => model.tokenize(prompt), prompt), token_ids);
        assert.equal(await greedy(page, prompt), text);
        assert.equal(await greedy(page, token_ids), text, "given as ids");
        const [[id, value]] = numpy_f32_on_q8_0.top10_last;
        const logits = await page.evaluate(async ids => [...await model.logits(ids)], token_ids);
        assert.equal(logits.length, 2048);
        assert.equal(logits.indexOf(Math.max(...logits)), id);
        assert.ok(Math.abs(logits[id] - value) < 0.1, `logit ${logits[id]}, numpy ${value}`);
    }
    expected = await page.evaluate(ids => model.detokenize(ids), greedy32.slice(0, TOKENS));

    const {info, stats} = await page.evaluate(async () => ({info: model.info, stats: await model.stats()}));
    assert.equal(info.architecture, "llama");
    assert.equal(info.context, 256);
    assert.equal(info.source, "tales-2m.Q8_0.gguf");
    assert.ok(info.gpu.subgroups, "SwiftShader has subgroups, and Chromium tells");
    assert.equal(stats.tokens, TOKENS);
    assert.equal(stats.stop, "length");
    assert.ok(stats.tokensPerSecond > 0 && stats.timeToFirstToken > 0);
    assert.deepEqual([events[0].stage, events.at(-1).stage], ["header", "ready"]);
    assert.equal(events.at(-1).loaded, info.bytes);
    assert.ok(events.every(({loaded}, i) => i === 0 || events[i - 1].stage === "header" || loaded >= events[i - 1].loaded));
    await page.evaluate(() => model.free());
    assert.match(await page.evaluate(() => model.generate("x").text().catch(String)), /freed: load it again/);
    await page.close();
});

test("the same without f16 and subgroups, and with small bindings", async () => {
    for (const limit of [128 << 20, 256 << 10]) {
        const page = await openPage(browser, `${server.url}lesser-${limit}/`);
        await load(page);
        const {subgroups, f16, maxBindingSize} = await page.evaluate(() => model.info.gpu);
        assert.deepEqual({subgroups, f16, maxBindingSize}, {subgroups: false, f16: false, maxBindingSize: limit});
        assert.equal(await greedy(page, prompt), expected);
        await page.close();
    }
});

test("bad arguments are told, and the model goes on", async () => {
    const page = await openPage(browser, server.url, {allow: [/404/]});
    const refused = await page.evaluate(async url => {
        const tell = async work => {
            try {
                return await work();
            } catch (error) {
                return `${error.name} ${error.code}: ${error.message}`;
            }
        };
        const sources = [];
        for (const source of ["http://", undefined, "/web/test/none.gguf", "/README.md", "ftp://x/y.gguf"]) {
            sources.push(await tell(() => Peregrine.load(source, {cache: false})));
        }
        window.model = await Peregrine.load(url, {context: 64, cache: false});
        const answers = [];
        for (const options of [{temperature: -1}, {nonsense: 1}, {seed: "x"}]) {
            answers.push(await tell(() => model.generate("Once", options).text()));
        }
        answers.push(await tell(() => model.chat([{role: "user", content: "Hi"}]).text()));
        answers.push(await tell(() => model.generate("").text()));
        answers.push(await tell(() => model.generate([9999999]).text()));
        answers.push(await tell(() => model.generate("king ".repeat(100)).text()));
        answers.push(await tell(() => model.setContext(1e6)));
        answers.push(await tell(() => model.exportAdapter("gguf")));
        answers.push(await tell(() => model.chat.completions.create({messages: [], n: 2})));
        return {sources, answers};
    }, tales.path);
    const patterns = [
        /argument: .*"http:\/\/"/, /argument: .*undefined/, /network: .*404/, /bad-file: .*not a GGUF/, /argument: .*ftp/,
        /argument: .*temperature/, /argument: .*nonsense/, /argument: .*"x"/, /argument: .*generate\(\)/, /PeregrineError|^\w|^$/,
        /argument: .*9999999/, /context-full: .*64/, /argument: .*1000000/, /argument: .*adapter/, /argument: n: expected 1/,
    ];
    [...refused.sources, ...refused.answers].forEach((text, i) => assert.match(text, patterns[i]));
    assert.ok(expected.startsWith(await greedy(page, prompt, 8)));
    await page.close();
});

test("an answer is stopped by its signal, by leaving the loop, by a text, and by n tokens", async () => {
    const page = await openPage(browser, server.url);
    await load(page);
    const outcome = await page.evaluate(async prompt => {
        const controller = new AbortController();
        const pieces = [];
        let reason;
        try {
            for await (const piece of model.generate(prompt, {signal: controller.signal})) {
                pieces.push(piece);
                if (pieces.length === 3) controller.abort();
            }
        } catch (error) {
            reason = error.name;
        }
        const aborted = await model.stats();
        let left = "";
        for await (const piece of model.generate(prompt, {temperature: 0})) {
            left += piece;
            if (left.length > 20) break;
        }
        const gone = AbortSignal.abort();
        const before = await model.generate(prompt, {signal: gone}).text().catch(error => error.name);
        const stopped = await model.generate(prompt, {temperature: 0, stop: ["king"]}).text();
        const {stop} = await model.stats();
        return {pieces, reason, aborted: aborted.stop, left, before, stopped, stop};
    }, prompt);
    assert.deepEqual(outcome, {
        pieces: outcome.pieces, reason: "AbortError", aborted: "aborted", left: outcome.left, before: "AbortError",
        stopped: expected.split("king")[0], stop: "stop-string",
    });
    assert.ok(outcome.pieces.length < 20, `${outcome.pieces.length} pieces, aborted after 3`);
    assert.ok(expected.startsWith(outcome.left) && outcome.left.length < 40);
    await page.close();
});

test("loading is aborted while the header, the weights and the shaders come", async () => {
    const page = await openPage(browser, server.url);
    const outcomes = await page.evaluate(async url => {
        const outcomes = [];
        const abortAt = async stage => {
            const controller = new AbortController();
            const onProgress = event => event.stage === stage && controller.abort();
            const begin = performance.now();
            const error = await Peregrine.load(url, {signal: controller.signal, onProgress, cache: false}).catch(error => error);
            outcomes.push(error.name ?? "loaded");
            return performance.now() - begin;
        };
        await abortAt("header");
        await abortAt("weights");
        outcomes.push(await Peregrine.load(url, {signal: AbortSignal.abort(), cache: false}).catch(error => error.name));
        return outcomes;
    }, smollm2.path);
    assert.deepEqual(outcomes, ["AbortError", "AbortError", "AbortError"]);
    await load(page); // and the next is loaded
    assert.equal(await greedy(page, prompt), expected);
    await page.close();
});

test("a lost device is replaced, between answers and amid one", async () => {
    const page = await openPage(browser, server.url);
    const outcome = await page.evaluate(async ([url, prompt, maxTokens]) => {
        const events = [];
        const onDevice = ({type}) => events.push(type);
        const model = await Peregrine.load(url, {context: 256, cache: false, onDevice});
        const options = {temperature: 0, maxTokens};
        await model.loseDevice();
        const between = await model.generate(prompt, options).text();
        let amid = "";
        let pieces = 0;
        for await (const piece of model.generate(prompt, options)) {
            amid += piece;
            if (++pieces === 5) model.loseDevice();
        }
        const {tokens} = await model.stats();
        return {between, amid, tokens, events};
    }, [tales.path, prompt, TOKENS]);
    assert.deepEqual(outcome, {between: expected, amid: expected, tokens: TOKENS, events: ["lost", "restored", "lost", "restored"]});
    await page.close();
});

test("two models in one page and one in another answer side by side", async () => {
    const [page, other] = [await openPage(browser, server.url), await openPage(browser, server.url)];
    // both keep the file: they share the store
    await Promise.all([load(page, {cache: true}), load(other, {cache: true})]);
    const both = page.evaluate(async ([url, prompt, maxTokens]) => {
        const second = await Peregrine.load(url, {context: 128});
        const options = {temperature: 0, maxTokens};
        return Promise.all([model.generate(prompt, options).text(), second.generate(prompt, options).text()]);
    }, [tales.path, prompt, TOKENS]);
    assert.deepEqual([...await both, await greedy(other, prompt)], [expected, expected, expected]);
    await Promise.all([page.close(), other.close()]);
});

test("the page keeps responding while a model loads and answers", async () => {
    const page = await openPage(browser, server.url);
    const longest = await page.evaluate(async ([url, prompt]) => {
        // Time on the page's own thread between two of its ticks, without what the machine gives to others: the tasks that
        // the browser itself finds long.
        const long = [];
        new PerformanceObserver(list => long.push(...list.getEntries().map(({duration}) => duration)))
            .observe({type: "longtask", buffered: false});
        const model = await Peregrine.load(url, {context: 256, cache: false});
        await model.generate(prompt, {maxTokens: 200}).text();
        await new Promise(resolve => setTimeout(resolve, 100));
        return long;
    }, [tales.path, prompt]);
    assert.deepEqual(longest, []);
    await page.close();
});

test("an adapter is learned, switched and exported, and outlives its device", async () => {
    const page = await openPage(browser, server.url);
    await load(page);
    const outcome = await page.evaluate(async prompt => {
        const text = () => model.generate(prompt, {temperature: 0, maxTokens: 8}).text();
        const bare = await text();
        const losses = [];
        const examples = [{prompt, answer: " a falcon dived from the tower"}, {prompt: "The falcon", answer: " sat on the tower."}];
        for await (const {loss} of model.finetune(examples, {steps: 12, rank: 4, learningRate: 0.02, context: 32, seed: 7})) losses.push(loss);
        const taught = await text();
        await model.useAdapter(false);
        const off = await text();
        await model.useAdapter(true);
        await model.loseDevice();
        const again = await text();
        const files = [...await model.exportAdapter("gguf"), ...await model.exportAdapter("peft")];
        const starts = await Promise.all(files.map(({blob}) => blob.slice(0, 4).text()));
        let steps = 0;
        for await (const _ of model.finetune(examples, {steps: 50, rank: 4, context: 32})) if (++steps === 2) break;
        return {bare, losses, taught, off, again, names: files.map(({name}) => name), starts, adapter: model.adapter};
    }, prompt);
    const {bare, losses, taught, off, again} = outcome;
    assert.equal(losses.length, 12);
    assert.ok(losses.at(-1) < 0.7 * losses[0], losses.join(" "));
    assert.notEqual(taught, bare);
    assert.deepEqual([off, again], [bare, taught]);
    assert.equal(outcome.starts[0], "GGUF");
    assert.deepEqual(outcome.names.slice(1), ["adapter_model.safetensors", "adapter_config.json"]);
    assert.deepEqual(outcome.adapter, {trained: true, enabled: true, steps: 2});
    await page.close();
});

const skip = !existsSync(join(root, smollm2.path)) && "SmolLM2 is missing: scripts/fetch-test-models.sh";

test("SmolLM2 from a file that the visitor chose, in OpenAI's shapes", {skip}, async () => {
    const page = await openPage(browser, server.url);
    await page.locator("input").setInputFiles(join(root, smollm2.path));
    const {greedy32_text} = smollm2.prompts.find(({name}) => name === "chat_gravity");
    const outcome = await page.evaluate(async () => {
        window.model = await Peregrine.load(document.querySelector("input").files[0], {context: 512});
        const messages = [{role: "user", content: "What is gravity?"}];
        const chunks = [];
        const request = {messages, temperature: 0, stream: true, stream_options: {include_usage: true}};
        for await (const chunk of await model.chat.completions.create({...request, max_tokens: 8})) chunks.push(chunk);
        const whole = await model.chat.completions.create({messages, temperature: 0, max_completion_tokens: 4});
        return {chunks, whole, stats: await model.stats()};
    });
    const text = outcome.chunks.map(({choices: [choice]}) => choice?.delta.content ?? "").join("");
    assert.ok(text.length > 20 && greedy32_text.startsWith(text), text);
    assert.deepEqual(outcome.chunks.at(-2).choices[0].finish_reason, "length");
    assert.equal(outcome.chunks.at(-1).usage.completion_tokens, 8);
    const [{message, finish_reason}] = outcome.whole.choices;
    assert.ok(text.startsWith(message.content) && message.role === "assistant" && finish_reason === "length", message.content);
    assert.ok(outcome.stats.wasmBytes < 64 << 20, `${outcome.stats.wasmBytes} bytes of WebAssembly memory`);
    await page.close();
});

test("SmolLM2 by ranges over a connection that is cut, and again without network", {skip}, async () => {
    const {prompt, greedy32_text} = smollm2.prompts.find(({name}) => name === "capital");
    const page = await openPage(browser, server.url);
    let cuts = 0;
    cut = (request, response) => {
        // the first long answer ends in its midst
        if (cuts > 0 || request.method !== "GET") return false;
        const write = response.write;
        let sent = 0;
        response.write = function (chunk, ...rest) {
            sent += chunk.length;
            if (sent > 20e6 && cuts === 0) {
                cuts = 1;
                response.destroy();
                return false;
            }
            return write.call(this, chunk, ...rest);
        };
        return false;
    };
    await load(page, {context: 512, cache: true}, smollm2.path);
    cut = undefined;
    assert.equal(cuts, 1, "the connection was cut");
    const text = await greedy(page, prompt, 6);
    assert.ok(text.length > 8 && greedy32_text.startsWith(text), text);
    await page.evaluate(() => model.free());

    const before = server.requests.length;
    cut = (request, response) => response.destroy() ?? true; // the network is gone
    const from = await page.evaluate(async url => {
        const stages = new Set();
        window.model = await Peregrine.load(url, {context: 512, onProgress: ({from}) => stages.add(from)});
        return [...stages];
    }, smollm2.path);
    cut = undefined;
    assert.ok(from.includes("cache"), from.join());
    assert.deepEqual(server.requests.slice(before).filter(({url}) => url.endsWith(".gguf")), []);
    assert.equal(await greedy(page, prompt, 6), text);
    await page.evaluate(() => model.free());
    const kept = await page.evaluate(async () => {
        await Peregrine.cache.clear();
        return Peregrine.cache.list();
    });
    assert.deepEqual(kept, []);
    await page.close();
});
