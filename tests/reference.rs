//! The CPU reference against the numbers of an independent implementation (float32 in numpy, tests/data/README.md).

mod common;

use common::tiny::{TinyModel, TinyTensor};
use common::{Random, Table, assert_close, close, data, find, ids, json, numbers, skipped};
use peregrine::Gguf;
use peregrine::formats::Format;
use peregrine::gguf::{Array, TensorType, Value};
use peregrine::model::tensors::Tensors;
use peregrine::model::{Architecture, Config};
use peregrine::reference::{ReferenceModel, ops};
use serde_json::Value as Json;
use std::path::Path;

/// Logits of the last position, from prompts of a few tens of tokens.
const TOLERANCE: f32 = 2e-3;
/// Where the two best logits are closer than this, rounding may choose either.
const MARGIN: f32 = 0.02;

fn load(path: &Path) -> Result<ReferenceModel, String> {
    let model = Gguf::open(path).and_then(|gguf| ReferenceModel::from_gguf(&gguf));
    model.map_err(|error| chain(&error))
}

fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source)));
    error.to_string() + &source.unwrap_or_default()
}

/// The logits after the last token.
fn last_logits(model: &mut ReferenceModel, ids: &[u32]) -> Result<Vec<f32>, String> {
    let logits = model.append(ids).map_err(|error| chain(&error))?;
    Ok(logits[logits.len() - model.config().vocab_size as usize..].to_vec())
}

/// Greedy decoding from these logits on gives `want`, up to the first step where the margin leaves the choice open.
fn greedy(model: &mut ReferenceModel, mut logits: Vec<f32>, want: &[u32]) -> Result<(), String> {
    for (step, &id) in want.iter().enumerate() {
        let (top, values) = ops::top_k(&logits, 2);
        if top[0] != id {
            let margin = values[0] - values[1];
            if margin <= MARGIN {
                eprintln!("    greedy step {step}: margin {margin}, the rest is not compared");
                return Ok(());
            }
            return Err(format!("greedy step {step}: id {} for {id}, with a margin of {margin}", top[0]));
        }
        logits = last_logits(model, &[id])?;
    }
    Ok(())
}

/// The logits that a reference lists as [[id, logit], ..].
fn top(logits: &[f32], want: &Json) -> Result<(), String> {
    for pair in want.as_array().expect("a list of pairs") {
        let (id, want) = (pair[0].as_u64().expect("an id") as usize, pair[1].as_f64().expect("a logit") as f32);
        close(&format!("logit of id {id}"), &[logits[id]], &[want], TOLERANCE, 0.0)?;
    }
    Ok(())
}

#[test]
fn tiny_models_in_every_format() {
    let Some(reference) = json("tiny_reference.json") else { return };
    let mut table = Table::new("tiny models");
    for (name, case) in reference.as_object().expect("an object") {
        let mut types = case["tensor_types"].as_object().expect("types").keys();
        if let Some(foreign) = types.find(|name| TensorType::from_name(name).and_then(Format::from_type).is_none()) {
            eprintln!("  {name}: {foreign} is not among our formats");
            continue;
        }
        let Some(path) = data(&format!("tiny/{name}.gguf")) else { continue };
        table.row(
            name,
            (|| {
                let mut model = load(&path)?;
                let logits = last_logits(&mut model, &ids(&case["ids"]))?;
                let largest = close("logits", &logits, &numbers(&case["logits_last"]), TOLERANCE, 0.0)?;
                eprintln!("  {name}: largest difference {largest:.1e}");
                greedy(&mut model, logits, &ids(&case["greedy16"]))
            })(),
        );
    }
    table.finish();
}

#[test]
fn stories260k() {
    let (Some(reference), Some(path)) = (json("stories260K_reference.json"), data("stories260K.F32.gguf")) else {
        return;
    };
    let mut table = Table::new("stories260K");
    for case in reference.as_array().expect("a list") {
        table.row(
            &case["prompt"].to_string(),
            (|| {
                let mut model = load(&path)?;
                let logits = last_logits(&mut model, &ids(&case["token_ids"]))?;
                close("logits", &logits, &numbers(&case["logits_last"]), TOLERANCE, 0.0)?;
                greedy(&mut model, logits, &ids(&case["greedy64"]))
            })(),
        );
    }
    table.finish();
}

#[test]
fn built_in_model() {
    let Some(reference) = json("tales/tales_reference.json") else { return };
    let path = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/models/tales-2m.Q8_0.gguf"));
    let Some(path) = path.exists().then(|| path.into()).or_else(|| data("tales/tales-2m.Q8_0.gguf")) else { return };
    let mut table = Table::new("built-in model");
    for case in reference["prompts"].as_array().expect("a list") {
        let want = &case["numpy_f32_on_q8_0"];
        table.row(
            &case["prompt"].to_string(),
            (|| {
                let mut model = load(&path)?;
                let logits = last_logits(&mut model, &ids(&case["token_ids"]))?;
                top(&logits, &want["top10_last"])?;
                greedy(&mut model, logits, &ids(&want["greedy32"]))
            })(),
        );
    }
    table.finish();
}

/// Some of the greedy steps: at 135 million weights the plain loops take a third of a second for each.
#[test]
fn smollm2() {
    let (Some(reference), Some(path)) =
        (json("smollm2_reference.json"), data("fetched/SmolLM2-135M-Instruct.Q4_1.gguf"))
    else {
        return;
    };
    let mut model = load(&path).expect("a valid model");
    let mut table = Table::new("SmolLM2");
    for case in reference["prompts"].as_array().expect("a list") {
        table.row(
            &case["name"].to_string(),
            (|| {
                model.truncate(0);
                let logits = last_logits(&mut model, &ids(&case["token_ids"]))?;
                top(&logits, &case["top10_last"])?;
                greedy(&mut model, logits, &ids(&case["greedy32"])[..4])
            })(),
        );
    }
    table.finish();
}

/// What real files do, as far as it concerns config, tensors and logits.
#[test]
fn variants() {
    let Some(reference) = json("variants/variants.json") else { return };
    let reference = reference.as_array().expect("a list");
    let case_of = |file: &str| reference.iter().find(|case| case["file"] == file).expect("a case of variants.json");
    let mut table = Table::new("variants");
    let mut absent = 0;
    for case in reference {
        let file = case["file"].as_str().expect("a file name");
        let error = ERRORS.iter().find(|(name, _)| *name == file);
        // An error is not the only good answer where the file means what another one says clearly.
        let means = case["also_ok"].as_str().and_then(|text| text.strip_prefix("same_logits as ")?.split(' ').next());
        let logits = if case["expect"] == "error" { means.map(case_of) } else { Some(case) };
        if error.is_none() && logits.is_none() {
            continue; // for the tests of the reader or the tokenizer
        }
        let Some(path) = find(&format!("variants/{file}")) else {
            absent += 1;
            continue;
        };
        let outcome = match (load(&path), error, logits) {
            (Err(text), Some((_, words)), _) => match words.iter().find(|word| !text.contains(**word)) {
                Some(word) => Err(format!("{word:?} is not in {text:?}")),
                None => Ok(()),
            },
            (Ok(_), Some(_), _) => Err(format!("loads, expected an error about {}", case["error_about"])),
            (Ok(mut model), None, Some(case)) => {
                last_logits(&mut model, &ids(&case["prompt_ids"])).and_then(|logits| top(&logits, &case["top5"]))
            }
            (Err(_), None, _) if case["expect"] == "error" => Ok(()),
            (Err(text), None, _) => Err(text),
            (Ok(_), None, None) => unreachable!("skipped above"),
        };
        table.row(file, outcome);
    }
    if absent > 0 {
        skipped(&format!("{absent} files of variants/"));
    }
    table.finish();
}

/// Files that config or tensor table must refuse, and what the error has to say.
const ERRORS: &[(&str, &[&str])] = &[
    ("meta_eps_missing.gguf", &["missing", "llama.attention.layer_norm_rms_epsilon"]),
    ("meta_context_length_missing.gguf", &["missing", "llama.context_length"]),
    ("meta_block_count_missing.gguf", &["missing", "llama.block_count"]),
    ("meta_arch_unknown.gguf", &["architecture", "llamba9", "llama, qwen2, qwen3"]),
    ("kind_mmproj.gguf", &["mmproj", "projector", "not a language model"]),
    ("kind_embedding_bert.gguf", &["bert", "embedding model"]),
    ("tensor_embd_rows_287_of_288.gguf", &["token_embd.weight", "64x287", "64x288"]),
    ("tensor_shape_swapped.gguf", &["blk.0.attn_k.weight", "32x64", "64x32"]),
    ("tensor_zero_size.gguf", &["blk.0.attn_norm.weight", "shape 0", "shape 64"]),
    ("rope_type_llama3_string.gguf", &["rope.scaling.type", "llama3", "rope_freqs.weight"]),
];

#[test]
fn a_missing_bias_is_zero() {
    let Some(path) = data("variants/arch_qwen2_bias_missing.gguf") else { return };
    let gguf = Gguf::open(path).expect("a valid file");
    let config = Config::from_gguf(&gguf).expect("a valid model");
    let warnings = Tensors::find(&gguf, &config).expect("all that is needed").warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("blk.1.attn_k.bias"), "{warnings:?}");
}

#[test]
fn an_unused_tensor_is_a_warning() {
    let Some(path) = data("variants/tensor_extra_unused.gguf") else { return };
    let gguf = Gguf::open(path).expect("a valid file");
    let config = Config::from_gguf(&gguf).expect("a valid model");
    let warnings = Tensors::find(&gguf, &config).expect("all that is needed").warnings;
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("blk.0.unused_thing.weight"), "{warnings:?}");
}

fn tiny(architecture: Architecture) -> TinyModel {
    TinyModel::new(architecture, Format::F32, 7)
}

fn reference(model: &TinyModel) -> ReferenceModel {
    ReferenceModel::from_gguf(&model.gguf()).expect("a valid model")
}

/// All at once, in pieces of any size, and after taking tokens back: the same logits.
#[test]
fn pieces_give_what_the_whole_gives() {
    for architecture in Architecture::ALL {
        let model = tiny(architecture);
        let ids = Random::new(3).ids(23, model.vocab);
        let whole = reference(&model).append(&ids).expect("good ids");
        for piece in [1, 2, 7, 22] {
            let mut reference = reference(&model);
            let logits: Vec<f32> = ids.chunks(piece).flat_map(|ids| reference.append(ids).expect("good ids")).collect();
            assert_close(&format!("{architecture:?}, pieces of {piece}"), &logits, &whole, 0.0, 0.0);

            reference.append(&[1, 2, 3]).expect("good ids");
            reference.truncate(20);
            let again = reference.append(&ids[20..]).expect("good ids");
            assert_close("after truncate", &again, &whole[20 * model.vocab as usize..], 0.0, 0.0);
            assert_eq!(reference.position(), 23);
        }
    }
}

/// One model in both encodings: rows as they are, turned as halves; rows reordered, turned as neighbours.
#[test]
fn both_rope_pairings_of_one_model() {
    for format in Format::ALL {
        let halves = TinyModel { other_bias: true, ..TinyModel::new(Architecture::Qwen2, format, 11) };
        let neighbours = TinyModel { architecture: Architecture::Llama, neighbours: true, ..halves.clone() };
        let wrong = TinyModel { architecture: Architecture::Llama, ..halves.clone() };
        let ids = Random::new(5).ids(9, halves.vocab);
        let [a, b, c] = [halves, neighbours, wrong].map(|model| reference(&model).append(&ids).expect("good ids"));
        assert_close(&format!("{}, neighbours", format.name()), &b, &a, 1e-5, 1e-5);
        assert!(close("without reordering", &c, &a, 0.1, 0.1).is_err(), "the pairing must matter in this test");
    }
}

#[test]
fn a_tied_head_is_the_embedding() {
    let tied = tiny(Architecture::Llama);
    let mut tensors = tied.tensors();
    tensors.push(TinyTensor { name: "output.weight".into(), ..tensors[0].clone() });
    let ids = [5, 0, 202, 17];
    let own =
        ReferenceModel::from_gguf(&tied.gguf_of(&tensors)).expect("a valid model").append(&ids).expect("good ids");
    assert_close("own head", &own, &reference(&tied).append(&ids).expect("good ids"), 0.0, 0.0);
}

/// Blocks need not be alike.
#[test]
fn blocks_of_different_widths() {
    let model = tiny(Architecture::Llama)
        .with("attention.head_count", Value::Array(Array::U32(vec![6, 4])))
        .with("attention.head_count_kv", Value::Array(Array::U32(vec![2, 4])))
        .with("feed_forward_length", Value::Array(Array::U32(vec![100, 52])));
    let (mut tensors, narrow) =
        (model.tensors(), TinyModel { heads: 4, kv_heads: 4, feed_forward: 52, ..model.clone() });
    tensors.retain(|tensor| !tensor.name.starts_with("blk.1."));
    tensors.extend(narrow.tensors().into_iter().filter(|tensor| tensor.name.starts_with("blk.1.")));
    let mut model = ReferenceModel::from_gguf(&model.gguf_of(&tensors)).expect("a valid model");
    let logits = model.append(&[1, 2, 3]).expect("good ids");
    assert!(logits.len() == 3 * 203 && logits.iter().all(|logit| logit.is_finite()));
}

#[test]
fn every_step_is_traced_under_its_label() {
    let mut model = reference(&tiny(Architecture::Qwen3));
    let mut steps = Vec::new();
    let logits = model.append_traced(&[1, 2, 3], &mut |label, values| steps.push((label.to_string(), values.to_vec())));
    let sizes: Vec<_> = steps.iter().map(|(label, values)| (label.as_str(), values.len() / 3)).collect();
    #[rustfmt::skip]
    let block = [
        ("attn_norm", 60), ("attn_q", 72), ("attn_k", 24), ("attn_v", 24), ("attn_q_norm", 72), ("attn_k_norm", 24),
        ("rope_q", 72), ("rope_k", 24), ("attn", 72), ("attn_output", 60), ("attn_residual", 60),
        ("ffn_norm", 60), ("ffn_gate", 100), ("ffn_up", 100), ("swiglu", 100), ("ffn_down", 60), ("ffn_residual", 60),
    ];
    let mut want = vec![("embed".to_string(), 60)];
    want.extend((0..2).flat_map(|i| block.map(|(label, size)| (format!("blk.{i}.{label}"), size))));
    want.extend([("output_norm".to_string(), 60), ("logits".to_string(), 203)]);
    let want: Vec<_> = want.iter().map(|(label, size)| (label.as_str(), *size)).collect();
    assert_eq!(sizes, want);
    assert_eq!(steps.pop().map(|(_, values)| values), logits.ok());
}

#[test]
fn an_id_outside_the_vocabulary_is_an_error() {
    let error = reference(&tiny(Architecture::Llama)).append(&[202, 203]).expect_err("no such token").to_string();
    assert!(error.contains("203"), "{error}");
}
