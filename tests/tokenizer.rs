//! Tokenizers against llama.cpp's own vectors, against what it does with awkward strings, and against themselves.

mod common;

use common::{Table, data, ids, json};
use peregrine::Gguf;
use peregrine::gguf::{Array, Strings, Writer};
use peregrine::tokenizer::{Encode, Tokenizer};
use proptest::prelude::*;
use serde_json::Value as Json;
use std::path::Path;

fn open(path: &Path) -> Tokenizer {
    Gguf::open(path)
        .and_then(|gguf| Tokenizer::from_gguf(&gguf))
        .unwrap_or_else(|e| panic!("{}: {e:?}", path.display()))
}

fn equal(got: Vec<u32>, want: &[u32]) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{got:?}, expected {want:?}")) }
}

const PLAIN: Encode = Encode { add_special: false, parse_special: false, literal: &[] };

#[test]
fn vectors_of_llama_cpp() {
    let mut table = Table::new("vectors");
    for name in ["deepseek-llm", "falcon", "gpt-2", "llama-bpe", "llama-spm", "phi-3", "qwen2"] {
        let file = |end: &str| data(&format!("vocabs/ggml-vocab-{name}.gguf{end}"));
        let (Some(vocab), Some(inputs), Some(outputs)) = (file(""), file(".inp"), file(".out")) else { continue };
        let tokenizer = open(&vocab);
        let inputs = std::fs::read_to_string(inputs).unwrap();
        let outputs = std::fs::read_to_string(outputs).unwrap();
        let inputs: Vec<&str> = inputs.split("\n__ggml_vocab_test__\n").collect();
        let outputs: Vec<Vec<u32>> =
            outputs.lines().map(|line| line.split_whitespace().map(|id| id.parse().unwrap()).collect()).collect();
        for (input, want) in inputs.iter().zip(&outputs) {
            let got = tokenizer.encode(input.as_bytes(), &PLAIN).map_err(|e| e.to_string());
            table.row(&format!("{name} {input:?}"), got.and_then(|got| equal(got, want)));
        }
    }
    table.finish();
}

/// Every name of tokenizer.ggml.pre, on a vocabulary that shows where words are cut.
#[test]
fn pre_tokenizers() {
    let reference = json("tokenizer_pre.json").expect("it is in tests/data");
    let texts = |list: &Json| -> Vec<String> {
        list.as_array().unwrap().iter().map(|text| text.as_str().unwrap().to_string()).collect()
    };
    let (tokens, merges, strings) =
        (texts(&reference["tokens"]), texts(&reference["merges"]), texts(&reference["strings"]));
    let mut table = Table::new("pre-tokenizers");
    for row in reference["rows"].as_array().unwrap() {
        for name in texts(&row["names"]) {
            let mut kinds = vec![1; tokens.len()];
            *kinds.last_mut().unwrap() = 3; // <s>
            let mut writer = Writer::new();
            writer.set("general.architecture", "llama").set("tokenizer.ggml.model", "gpt2");
            writer.set("tokenizer.ggml.pre", &name[..]).set("tokenizer.ggml.bos_token_id", tokens.len() as u32 - 1);
            writer.set("tokenizer.ggml.tokens", tokens.iter().collect::<Strings>());
            writer.set("tokenizer.ggml.merges", merges.iter().collect::<Strings>());
            writer.set("tokenizer.ggml.token_type", Array::I32(kinds));
            let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
            let tokenizer = match Tokenizer::from_gguf(&gguf) {
                Ok(tokenizer) => tokenizer,
                Err(e) => {
                    table.row(&name, Err(e.to_string()));
                    continue;
                }
            };
            let adds_bos = row["adds_bos"].as_bool().unwrap();
            let got = tokenizer.adds_bos();
            table.row(&format!("{name} adds BOS"), if got == adds_bos { Ok(()) } else { Err(format!("{got}")) });
            for (text, want) in strings.iter().zip(row["ids"].as_array().unwrap()) {
                let got = tokenizer.encode(text.as_bytes(), &PLAIN).map_err(|e| e.to_string());
                table.row(&format!("{name} {text:?}"), got.and_then(|got| equal(got, &ids(want))));
            }
        }
    }
    table.finish();
}

#[test]
fn awkward_strings() {
    let Some(strings) = json("vocabs/fuzz_strings.json") else { return };
    let strings: Vec<&str> = strings.as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect();
    let mut table = Table::new("awkward strings");
    for name in ["deepseek-llm", "gpt-2", "llama-bpe", "llama-spm", "qwen2", "smollm2"] {
        let vocab = match name {
            "smollm2" => data("fetched/SmolLM2-135M-Instruct.Q4_1.gguf"),
            _ => data(&format!("vocabs/ggml-vocab-{name}.gguf")),
        };
        let (Some(vocab), Some(reference)) = (vocab, json(&format!("vocabs/fuzz_{name}.json"))) else { continue };
        let tokenizer = open(&vocab);
        for (mode, options) in [("plain", PLAIN), ("special", Encode::default())] {
            for (text, want) in strings.iter().zip(reference[mode].as_array().unwrap()) {
                let got = tokenizer.encode(text.as_bytes(), &options).map_err(|e| e.to_string());
                table.row(&format!("{name} {mode} {text:?}"), got.and_then(|got| equal(got, &ids(want))));
            }
        }
    }
    table.finish();
}

/// Text of a case: as it is, or in hexadecimal where it is no UTF-8.
fn text_of(case: &Json) -> Vec<u8> {
    match case["text_hex"].as_str() {
        Some(hex) => (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect(),
        None => case["text"].as_str().unwrap().as_bytes().to_vec(),
    }
}

#[test]
fn variants() {
    let Some(reference) = json("variants/variants.json") else { return };
    let mut table = Table::new("variants");
    for case in reference.as_array().unwrap() {
        let file = case["file"].as_str().unwrap();
        let Some(path) = data(&format!("variants/{file}")) else { continue };
        if let Some((_, words)) = ERRORS.iter().find(|(name, _)| *name == file) {
            let outcome = match Gguf::open(&path).and_then(|gguf| Tokenizer::from_gguf(&gguf)) {
                Ok(_) => Err("it loads".into()),
                Err(e) => words
                    .iter()
                    .find(|w| !e.to_string().contains(**w))
                    .map_or(Ok(()), |w| Err(format!("{w:?} is not in {e}"))),
            };
            table.row(file, outcome);
            continue;
        }
        if case["expect"] == "error" {
            continue;
        }
        let tokenizer = open(&path);
        if let Some(want) = case.get("eog_ids") {
            table.row(&format!("{file} end ids"), equal(tokenizer.end_ids().to_vec(), &ids(want)));
        }
        if let Some(want) = case["add_bos"].as_bool() {
            let got = tokenizer.adds_bos();
            table.row(&format!("{file} add_bos"), if got == want { Ok(()) } else { Err(format!("{got}")) });
        }
        for row in case["tokenize"].as_array().into_iter().flatten() {
            let flag = |name: &str| row[name].as_bool().unwrap();
            let options =
                Encode { add_special: flag("add_special"), parse_special: flag("parse_special"), literal: &[] };
            let got = tokenizer.encode(&text_of(row), &options).map_err(|e| e.to_string());
            table.row(&format!("{file} {row}"), got.and_then(|got| equal(got, &ids(&row["ids"]))));
        }
        for (id, hex) in case["pieces_hex"].as_object().into_iter().flatten() {
            let got: String = tokenizer.piece(id.parse().unwrap(), true).iter().map(|b| format!("{b:02x}")).collect();
            table.row(&format!("{file} piece {id}"), if got == hex.as_str().unwrap() { Ok(()) } else { Err(got) });
        }
    }
    table.finish();
}

const ERRORS: &[(&str, &[&str])] = &[
    ("tok_pre_unknown.gguf", &["pre-tokenizer", "brand-new-pre", "qwen2"]),
    ("tok_merges_missing.gguf", &["tokenizer.ggml.merges", "missing"]),
    ("tok_tokens_missing.gguf", &["tokenizer.ggml.tokens", "missing"]),
    ("tok_model_unknown.gguf", &["tiktoken9"]),
];

#[test]
fn use_cases() {
    let (Some(cases), Some(base), Some(spm)) =
        (json("use_cases.json"), data("variants/base.gguf"), data("variants/spm_base.gguf"))
    else {
        return;
    };
    let (base, spm) = (open(&base), open(&spm));
    let mut table = Table::new("use cases");
    for case in cases.as_array().unwrap() {
        let (what, how) = (case["what"].as_str().unwrap(), case["how"].as_str().unwrap());
        if let (Some(_), true) = (case.get("ids"), how.starts_with("tokenize")) {
            let tokenizer = if how.contains("spm_base") { &spm } else { &base };
            let parse_special = case["parse_special"].as_bool().unwrap_or(true);
            let options = Encode { parse_special, ..Encode::default() };
            let got = tokenizer.encode(&text_of(case), &options).map_err(|e| e.to_string());
            table.row(what, got.and_then(|got| equal(got, &ids(&case["ids"]))));
        }
        if let Some(forced) = case.get("force_ids") {
            let mut stream = base.stream();
            let pieces: Vec<String> = ids(forced).into_iter().map(|id| stream.push(id)).collect();
            let want = ["", "", "", case["text"].as_str().unwrap()];
            table.row(what, if pieces == want { Ok(()) } else { Err(format!("{pieces:?}")) });
        }
    }
    let lone = base.id_of("Ģ".as_bytes()).expect("the token of byte 0x80, which is written U+0122");
    let mut stream = base.stream();
    let text = stream.push(lone) + &stream.push(64) + &stream.finish();
    table.row("a stray continuation byte", if text == "\u{fffd}a" { Ok(()) } else { Err(text) });
    table.row(
        "SPM",
        spm.encode(b"the cat", &Encode::default())
            .map_err(|e| e.to_string())
            .and_then(|got| equal(got, &[1, 265, 271])),
    );
    table.row(
        "SPM and a leading space",
        spm.encode(b" the cat", &Encode::default())
            .map_err(|e| e.to_string())
            .and_then(|got| equal(got, &[1, 259, 265, 271])),
    );
    table.finish();
}

/// The built-in model's tokenizer, which needs no reference data.
fn built_in() -> Tokenizer {
    open(&Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tales-2m.Q8_0.gguf"))
}

#[test]
fn literal_ranges_hide_control_tokens() {
    let tokenizer = built_in();
    let end = "<|endoftext|>";
    let text = format!("a{end}b{end}c");
    let count = |literal: Option<std::ops::Range<usize>>| {
        let literal = literal.as_slice();
        let options = Encode { add_special: false, parse_special: true, literal };
        let ids = tokenizer.encode(text.as_bytes(), &options).unwrap();
        assert_eq!(tokenizer.decode_bytes(&ids, true), text.as_bytes());
        ids.iter().filter(|&&id| id == 0).count()
    };
    let first = 1..1 + end.len();
    assert_eq!(count(None), 2);
    assert_eq!(count(Some(first)), 1);
    assert_eq!(count(Some(0..5)), 1, "a range that cuts the token hides it");
    assert_eq!(count(Some(0..text.len())), 0);
}

/// Texts of control tokens, pieces of them, white space and other text, in any order.
fn templated() -> impl Strategy<Value = Vec<u8>> {
    let parts = ["<|endoftext|>", "<|endof", "|>", "<", " ", "\n", "the cat", "é", "😀", "\u{301}"]
        .map(|s| s.as_bytes().to_vec());
    let part = prop_oneof![prop::sample::select(parts.to_vec()), prop::collection::vec(any::<u8>(), 1..3)];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn byte_level_round_trip(text in "\\PC{0,40}|[ \\t\\n\\r a-zé日😀]{0,40}") {
        let tokenizer = built_in_once();
        let ids = tokenizer.encode(text.as_bytes(), &PLAIN).unwrap();
        prop_assert_eq!(tokenizer.decode(&ids), &text[..]);
        // in a stream too, whatever the borders of its tokens
        let mut stream = tokenizer.stream();
        let streamed: String = ids.iter().map(|&id| stream.push(id)).collect::<String>() + &stream.finish();
        prop_assert_eq!(streamed, text);
    }

    #[test]
    fn any_bytes_can_be_encoded(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let tokenizer = built_in_once();
        let ids = tokenizer.encode(&bytes, &PLAIN).unwrap();
        // each byte that is no UTF-8 came as U+FFFD
        let valid = bytes.utf8_chunks().map(|c| c.valid().to_string() + &"\u{fffd}".repeat(c.invalid().len()));
        prop_assert_eq!(tokenizer.decode(&ids), valid.collect::<String>());
    }

    #[test]
    fn control_tokens_come_only_from_outside_literal_ranges(
        text in templated(),
        ends in prop::collection::vec(0usize..80, 4),
    ) {
        let tokenizer = built_in_once();
        let mut ends = ends;
        ends.sort_unstable();
        let literal = [ends[0]..ends[1], ends[2]..ends[3]];
        let options = Encode { add_special: false, parse_special: true, literal: &literal };
        let ids = tokenizer.encode(&text, &options).unwrap();
        let control = b"<|endoftext|>";
        let overlaps = |at: usize| literal.iter().any(|range| at < range.end && range.start < at + control.len());
        let want = text.windows(control.len()).enumerate().filter(|(at, window)| window == control && !overlaps(*at)).count();
        prop_assert_eq!(ids.iter().filter(|&&id| id == 0).count(), want);
        if let Ok(text) = std::str::from_utf8(&text) {
            prop_assert_eq!(tokenizer.decode_bytes(&ids, true), text.as_bytes());
        }
    }

    #[test]
    fn a_stream_of_any_tokens_is_the_lossy_text(ids in prop::collection::vec(0u32..2048, 0..40)) {
        let tokenizer = built_in_once();
        let mut stream = tokenizer.stream();
        let streamed: String = ids.iter().map(|&id| stream.push(id)).collect::<String>() + &stream.finish();
        prop_assert_eq!(streamed, tokenizer.decode(&ids));
    }
}

fn built_in_once() -> &'static Tokenizer {
    static ONCE: std::sync::OnceLock<Tokenizer> = std::sync::OnceLock::new();
    ONCE.get_or_init(built_in)
}
