//! Tokenizers against llama.cpp's own vectors, against what it does with awkward strings, and against themselves.

mod common;

use common::{Table, data, ids, json};
use peregrine::Gguf;
use peregrine::gguf::{Array, Strings, Value, Writer};
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

/// A SentencePiece vocabulary made here.
fn small_spm(tokens: &[(&[u8], f32, i32)], keys: &[(&str, Value)]) -> Tokenizer {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").set("tokenizer.ggml.model", "llama");
    writer.set("tokenizer.ggml.tokens", tokens.iter().map(|t| t.0).collect::<Strings>());
    writer.set("tokenizer.ggml.scores", tokens.iter().map(|t| t.1).collect::<Vec<f32>>());
    writer.set("tokenizer.ggml.token_type", Array::I32(tokens.iter().map(|t| t.2).collect()));
    keys.iter().for_each(|(key, value)| {
        writer.set(key, value.clone());
    });
    Tokenizer::from_gguf(&Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap()
}

#[test]
fn spm_joins_the_highest_score_first() {
    let tokens: &[(&[u8], f32, i32)] = &[
        (b"<unk>", 0.0, 2),
        (b"<s>", 0.0, 3),
        (b"</s>", 0.0, 3),
        (b"a", -9.0, 1),
        (b"b", -9.0, 1),
        (b"c", -9.0, 1),
        (b"ab", -3.0, 1),
        (b"bc", -1.0, 1),
        (b"abc", -4.0, 1),
        (b"aa", -2.0, 1),
        (b"<0x0A>", 0.0, 6),
    ];
    let tokenizer = small_spm(tokens, &[("tokenizer.ggml.add_space_prefix", Value::Bool(false))]);
    let mut table = Table::new("SPM");
    for (text, want) in [
        (&b"abc"[..], vec![8]), // bc first, then a + bc
        (b"ab", vec![6]),
        (b"aaa", vec![9, 3]), // the leftmost of two equal pairs
        (b"aaaa", vec![9, 9]),
        (b"\n", vec![10]),
        (b"abx", vec![6, 0]), // no byte token for x: unknown
        (b"", vec![]),
    ] {
        let got = tokenizer.encode(text, &PLAIN).map_err(|e| e.to_string());
        table.row(&format!("{:?}", String::from_utf8_lossy(text)), got.and_then(|got| equal(got, &want)));
    }
    table.finish();
    assert_eq!(
        tokenizer.encode(b"a", &Encode::default()).unwrap(),
        [1, 3],
        "SentencePiece adds BOS unless told otherwise"
    );
}

#[test]
fn ids_outside_the_vocabulary_are_told_and_ignored() {
    let tokens: &[(&[u8], f32, i32)] = &[(b"<unk>", 0.0, 2), (b"<s>", 0.0, 3), (b"</s>", 0.0, 3), (b"a", 0.0, 1)];
    let tokenizer = small_spm(tokens, &[("tokenizer.ggml.eos_token_id", Value::U32(77))]);
    // </s> still ends an answer: it is known by its text
    assert_eq!((tokenizer.eos(), tokenizer.end_ids()), (None, &[2][..]));
    assert!(tokenizer.warnings().iter().any(|w| w.contains("eos_token_id is 77")), "{:?}", tokenizer.warnings());
    assert_eq!(tokenizer.token_text(4), None);
    assert_eq!(tokenizer.decode(&[3, 999]), "a");
}

proptest! {
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
        let ids = built_in_once().encode(&bytes, &PLAIN).unwrap();
        prop_assert!(ids.iter().all(|&id| id < 2048));
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
