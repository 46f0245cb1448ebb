//! The CPU reference: against the numbers of an independent implementation, and against itself.

mod common;

use common::cases::{Engine, Loader, chain};
use common::tiny::{TinyModel, TinyTensor};
use common::{Random, assert_close, close, data};
use peregrine::Gguf;
use peregrine::formats::Format;
use peregrine::gguf::{Array, Value};
use peregrine::model::tensors::Tensors;
use peregrine::model::{Architecture, Config};
use peregrine::reference::ReferenceModel;
use std::path::Path;

impl Engine for ReferenceModel {
    fn append(&mut self, ids: &[u32]) -> Result<Vec<f32>, String> {
        let mut logits = ReferenceModel::append(self, ids).map_err(|error| chain(&error))?;
        Ok(logits.split_off(logits.len() - self.config().vocab_size as usize))
    }

    fn reset(&mut self) {
        self.truncate(0);
    }
}

fn load(path: &Path) -> Result<Box<dyn Engine>, String> {
    let model = Gguf::open(path).and_then(|gguf| ReferenceModel::<f32>::from_gguf(&gguf));
    Ok(Box::new(model.map_err(|error| chain(&error))?))
}

const REFERENCE: Loader = Loader { load: &load, tolerance: 2e-3, margin: 0.02 };

#[test]
fn tiny_models_in_every_format() {
    REFERENCE.tiny_models();
}

#[test]
fn stories260k() {
    REFERENCE.stories260k();
}

#[test]
fn built_in_model() {
    REFERENCE.built_in_model();
}

#[test]
fn variants() {
    REFERENCE.variants();
}

/// Few steps: at 135 million weights the plain loops take a third of a second for each.
#[test]
fn smollm2() {
    REFERENCE.smollm2(4);
}

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
    ReferenceModel::<f32>::from_gguf(&model.gguf()).expect("a valid model")
}

/// The logits after every token of a new sequence.
fn logits(model: &TinyModel, ids: &[u32]) -> Vec<f32> {
    reference(model).append(ids).expect("good ids")
}

/// All at once, in pieces of any size, and after taking tokens back: the same logits.
#[test]
fn pieces_give_what_the_whole_gives() {
    for architecture in Architecture::ALL {
        let model = tiny(architecture);
        let ids = Random::new(3).ids(23, model.vocab);
        let whole = logits(&model, &ids);
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
        let [a, b, c] = [halves, neighbours, wrong].map(|model| logits(&model, &ids));
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
    let own = ReferenceModel::<f32>::from_gguf(&tied.gguf_of(&tensors))
        .expect("a valid model")
        .append(&ids)
        .expect("good ids");
    assert_close("own head", &own, &logits(&tied, &ids), 0.0, 0.0);
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
    let mut model = ReferenceModel::<f32>::from_gguf(&model.gguf_of(&tensors)).expect("a valid model");
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
        ("attn_norm", 60), ("attn_q", 72), ("attn_k", 24), ("attn_v", 24), ("attn_qkv", 120), ("attn_q_norm", 72),
        ("attn_k_norm", 24), ("rope_kv", 72), ("rope_k", 24), ("attn", 72), ("attn_output", 60), ("attn_residual", 60),
        ("ffn_norm", 60), ("ffn_gate", 100), ("ffn_up", 100), ("swiglu.gate_up", 200), ("swiglu", 100), ("ffn_down", 60),
        ("ffn_residual", 60),
    ];
    let mut want = vec![("embed".to_string(), 60)];
    want.extend((0..2).flat_map(|i| block.map(|(label, size)| (format!("blk.{i}.{label}"), size))));
    want.extend([("output_norm".to_string(), 60), ("logits".to_string(), 203)]);
    let want: Vec<_> = want.iter().map(|(label, size)| (label.as_str(), *size)).collect();
    assert_eq!(sizes, want);
    assert_eq!(steps.pop().map(|(_, values)| values), logits.ok());
}

/// A bias is a step of its own, as it is on the GPU.
#[test]
fn biases_are_traced() {
    let mut steps = Vec::new();
    let mut model = reference(&tiny(Architecture::Qwen2));
    model.append_traced(&[1], &mut |label, _| steps.push(label.to_string())).expect("good ids");
    assert_eq!(steps[2..6], ["blk.0.attn_q", "blk.0.attn_q.bias", "blk.0.attn_k", "blk.0.attn_k.bias"]);
}

#[test]
fn an_id_outside_the_vocabulary_is_an_error() {
    let error = reference(&tiny(Architecture::Llama)).append(&[202, 203]).expect_err("no such token").to_string();
    assert!(error.contains("203"), "{error}");
}
