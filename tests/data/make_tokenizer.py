"""Makes tokenizer_pre.json: how llama.cpp cuts awkward strings under each name of tokenizer.ggml.pre.

    python make_tokenizer.py FOLDER     # where `npm i --ignore-scripts node-llama-cpp@3.21.1` was run

The vocabulary is made here: the bytes, and merges of whatever stands side by side in the strings, so that cuts show.
Needs the package gguf. Characters are of Unicode 14 at most: llama.cpp knows no newer letters.
"""

import json
import random
import subprocess
import sys
import tempfile

import gguf

NAMES = """default gpt-2 phi-2 mpt olmo jais exaone4 trillion granite-docling a.x-4.0 mellum gigachat
llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 dbrx smaug-bpe
qwen2 stablelm2 deepseek-r1-qwen megrez hunyuan kormo solar-open grok-2 qwen35
smollm starcoder refact command-r codeshell exaone minerva-7b mellum2
tekken gpt-4o llama4 kanana2 seed-coder minicpm5
deepseek-llm deepseek-coder deepseek-v3 hunyuan-dense joyai-llm falcon""".split()

STRINGS = [
    "the cat's out, I'LL say we'Ve don't",
    "a  b   c\td\n\ne \n f\r\n\r\n  g  ",
    "  lead\n   \n\ttail \t ",
    "1234567 in 3.14159, 2^10 x1y22z333",
    "٣٤٥٦ ½²³ Ⅷ 〇一二三",
    "HTTPServer camelCase XMLHttp ÉcoleÀB ßtraSSe",
    "f(x) == [y] && !z; // ok?\n\t$a+=`b`~c|d^e<f>g",
    "...!!! --- ''' \"\"\" '' 's 'S",
    "/usr/bin//x\n\\path\r\n!/?/",
    "naïve cafe\u0301 re\u0301sume\u0301 \u0301x नमस्ते",
    "你好,世界。こんにちは カタカナ 안녕하세요!",
    "全角　空白　と「括弧」、句点。ＡＢＣ１２３！？",
    "Привет мир ΑΒΓ αβγ Ωμέγα",
    "გამარჯობა სამყარო Ა Հայերեն բարև",
    "𝐀𝐁 𝑥𝑦 𝟙𝟚 Ⓐⓑ ªº ʰʲ ǅ",
    "مرحبا بالعالم שלום ไทย ภาษา",
    "😀👩‍👩‍👧 🇩🇪 ❤️ ™€£",
    "a\u00a0b\u2003c\u2028d\u3000e\u200bf\u0085g",
    "“q” ‘r’ — … « » ¿¡ 、。",
    "def f(self,\n        x: int) -> None:\n    return x  # 12345\n\n\n",
    "\x01\x1f\x7f tab\x0bvt\x0cff",
]


def byte_chars():
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(0x100, 0x200))
    return [chr(b) if b in shown else chr(next(hidden)) for b in range(256)]


CHARS = byte_chars()


WHOLE = ["Ġout", "Ġin"]  # tokens that no merge makes: only rules that take whole words find them


def learn():
    """Merges of all that stands side by side in the strings, short ones first, else in a random order."""
    rng = random.Random(4)
    words = [[CHARS[b] for b in s.encode()] for s in STRINGS]
    merges = []
    while True:
        pairs = sorted({pair for word in words for pair in zip(word, word[1:])})
        pairs = [pair for pair in pairs if "".join(pair) not in WHOLE]
        if not pairs:
            return merges
        shortest = min(len(a + b) for a, b in pairs)
        best = rng.choice([pair for pair in pairs if len("".join(pair)) == shortest])
        merges.append(" ".join(best))
        for i, word in enumerate(words):
            out = []
            for c in word:
                if out and (out[-1], c) == best:
                    out[-1] += c
                else:
                    out.append(c)
            words[i] = out


ORACLE = """
import fs from "fs";
import {getLlama, LlamaLogLevel} from "node-llama-cpp";
const llama = await getLlama({gpu: false, build: "never", skipDownload: true, logLevel: LlamaLogLevel.disabled});
const {files, strings} = JSON.parse(fs.readFileSync(0));
const answer = {};
for (const [name, modelPath] of Object.entries(files)) {
    const model = await llama.loadModel({modelPath, vocabOnly: true});
    answer[name] = {adds_bos: model.tokens.shouldPrependBosToken, ids: strings.map(s => model.tokenize(s, false))};
}
fs.writeFileSync(process.argv[2], JSON.stringify(answer));
process.exit(0);
"""


def main():
    merges = learn()
    tokens = CHARS + list(dict.fromkeys(m.replace(" ", "") for m in merges)) + WHOLE + ["<s>"]
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name in NAMES:
            files[name] = f"{folder}/{name}.gguf"
            writer = gguf.GGUFWriter(files[name], "llama")
            for add in (writer.add_context_length, writer.add_embedding_length, writer.add_block_count):
                add(32)
            writer.add_feed_forward_length(32)
            writer.add_head_count(1)
            writer.add_layer_norm_rms_eps(1e-5)
            writer.add_tokenizer_model("gpt2")
            writer.add_tokenizer_pre(name)
            writer.add_token_list(tokens)
            writer.add_token_types([1] * (len(tokens) - 1) + [3])
            writer.add_token_merges(merges)
            writer.add_bos_token_id(len(tokens) - 1)
            writer.add_eos_token_id(len(tokens) - 1)
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.close()
        ask = json.dumps({"files": files, "strings": STRINGS})
        with tempfile.NamedTemporaryFile("w", suffix=".mjs", dir=sys.argv[1]) as script:
            script.write(ORACLE)
            script.flush()
            subprocess.run(["node", script.name, f"{folder}/answer"], input=ask, text=True, check=True)
        with open(f"{folder}/answer") as file:
            answer = json.load(file)
    # names with the same result share a row
    rows = []
    for name, result in answer.items():
        row = next((row for row in rows if row["ids"] == result["ids"] and row["adds_bos"] == result["adds_bos"]), None)
        if row:
            row["names"].append(name)
        else:
            rows.append({"names": [name], **result})
    with open("tokenizer_pre.json", "w") as file:
        parts = {"tokens": tokens, "merges": merges, "strings": STRINGS}
        file.write("{\n" + "".join(f'"{key}": {json.dumps(value, ensure_ascii=False)},\n' for key, value in parts.items()))
        file.write('"rows": [\n' + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]}\n")
    print(len(tokens), "tokens;", *(row["names"] for row in rows), sep="\n")


main()
