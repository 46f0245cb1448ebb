//! Config and tensor table: how metadata of real and of nonsensical files are read.

mod common;

use common::tiny::{TinyModel, TinyTensor};
use common::{Random, Table, assert_close};
use peregrine::Gguf;
use peregrine::formats::Format;
use peregrine::gguf::{Array, Value};
use peregrine::model::rope::{RopeConfig, RopeScaling};
use peregrine::model::tensors::Tensors;
use peregrine::model::{Architecture, Config, Pairing, Rope};
use peregrine::reference::ReferenceModel;

fn tiny() -> TinyModel {
    TinyModel::new(Architecture::Llama, Format::F32, 1)
}

fn config(model: &TinyModel) -> peregrine::Result<Config> {
    Config::from_gguf(&model.gguf())
}

fn string(text: &str) -> Value {
    Value::String(text.into())
}

fn u32s(numbers: &[u32]) -> Value {
    Value::Array(Array::U32(numbers.into()))
}

/// The text holds every one of these words.
fn says(text: &str, words: &[&str]) -> Result<(), String> {
    match words.iter().find(|word| !text.contains(**word)) {
        Some(word) => Err(format!("{word:?} is not in {text:?}")),
        None => Ok(()),
    }
}

#[test]
fn the_numbers_of_a_model() {
    let config = config(&tiny()).expect("a valid model");
    let rope = RopeConfig {
        dims: 12,
        base: 10000.0,
        pairing: Pairing::Neighbours,
        scaling: RopeScaling::None,
        attn_factor: 1.0,
    };
    let want = Config {
        architecture: Architecture::Llama,
        name: Some("tiny random llama".into()),
        block_count: 2,
        embedding_length: 60,
        vocab_size: 203,
        context_length: 128,
        heads: vec![6, 6],
        kv_heads: vec![2, 2],
        feed_forward: vec![100, 100],
        head_size: 12,
        rms_eps: 1e-5,
        rope,
    };
    assert_eq!(config, want);
    assert_eq!((config.q_length(1), config.kv_length(1)), (72, 24));
}

#[test]
fn kinds_and_defaults_of_keys() {
    type Check = fn(&Config) -> bool;
    let tokens = Value::Array(Array::String(["a", "b", "c"].iter().collect()));
    #[rustfmt::skip]
    let cases: Vec<(&str, TinyModel, Check)> = vec![
        ("u64", tiny().with("embedding_length", Value::U64(60)), |c| c.embedding_length == 60),
        ("u8", tiny().with("block_count", Value::U8(2)), |c| c.block_count == 2),
        ("i32", tiny().with("context_length", Value::I32(77)), |c| c.context_length == 77),
        ("freq_base as u32", tiny().with("rope.freq_base", Value::U32(500_000)), |c| c.rope.base == 500_000.0),
        ("eps as f64", tiny().with("attention.layer_norm_rms_epsilon", Value::F64(1e-6)), |c| c.rms_eps == 1e-6),
        ("eps 0", tiny().with("attention.layer_norm_rms_epsilon", Value::F32(0.0)), |c| c.rms_eps == 0.0),
        ("no freq_base", tiny().without("rope.freq_base"), |c| c.rope.base == 10000.0),
        ("no name", tiny().without("general.name"), |c| c.name.is_none()),
        ("a name that is no string", tiny().with("general.name", Value::U32(7)), |c| c.name.is_none()),
        ("no kv heads", tiny().without("attention.head_count_kv"), |c| c.kv_heads == [6, 6]),
        ("rope on a part", tiny().with("rope.dimension_count", Value::U32(8)), |c| c.rope.dims == 8),
        ("head size from heads", tiny().without("attention.key_length").without("attention.value_length"), |c| c.head_size == 10),
        ("no value_length", tiny().without("attention.value_length"), |c| c.head_size == 12),
        ("kv heads of each block", tiny().with("attention.head_count_kv", u32s(&[2, 3])), |c| c.kv_heads == [2, 3]),
        ("heads as i32s", tiny().with("attention.head_count", Value::Array(Array::I32(vec![6, 4]))), |c| c.heads == [6, 4]),
        ("feed-forward of each block", tiny().with("feed_forward_length", u32s(&[100, 48])), |c| c.feed_forward == [100, 48]),
        ("an entry more", tiny().with("feed_forward_length", u32s(&[100, 48, 0])), |c| c.feed_forward == [100, 48]),
        ("vocabulary: rows", tiny().with("vocab_size", Value::U32(32000)), |c| c.vocab_size == 203),
        ("vocabulary: tokens first", tiny().with("tokenizer.ggml.tokens", tokens), |c| c.vocab_size == 3),
        ("no experts", tiny().with("expert_count", Value::U32(0)), |c| c.block_count == 2),
        ("causal", tiny().with("attention.causal", Value::Bool(true)), |c| c.block_count == 2),
    ];
    let mut table = Table::new("keys");
    for (name, model, check) in cases {
        let outcome = match config(&model) {
            Ok(config) if check(&config) => Ok(()),
            Ok(config) => Err(format!("{config:?}")),
            Err(error) => Err(error.to_string()),
        };
        table.row(name, outcome);
    }
    table.finish();
}

#[test]
fn nonsense_is_an_error_that_names_the_key() {
    let big = u32::MAX;
    #[rustfmt::skip]
    let cases: Vec<(TinyModel, &[&str])> = vec![
        (tiny().without("general.architecture"), &["missing", "general.architecture"]),
        (tiny().with("general.architecture", Value::U32(1)), &["general.architecture", "string", "1"]),
        (tiny().with("general.architecture", string("llamba9")), &["architecture", "llamba9", "llama, qwen2, qwen3"]),
        (tiny().with("general.type", string("adapter")), &["unsupported", "LoRA adapter", "Give the model"]),
        (tiny().with("general.type", string("mmproj")), &["unsupported", "projector", "mmproj"]),
        (tiny().with("general.architecture", string("clip")), &["unsupported", "projector", "mmproj"]),
        (tiny().with("general.architecture", string("nomic-bert")), &["unsupported", "nomic-bert", "embedding model"]),
        (tiny().with("general.architecture", string("controlvector")), &["unsupported", "control vector"]),
        (tiny().without("block_count"), &["missing", "llama.block_count"]),
        (tiny().with("block_count", Value::U32(0)), &["llama.block_count", "from 1", "got 0"]),
        (tiny().with("block_count", Value::U32(big)), &["llama.block_count", "1024", "4294967295"]),
        (tiny().with("block_count", Value::U64(1 << 40)), &["llama.block_count", "1099511627776"]),
        (tiny().with("block_count", Value::I32(-2)), &["llama.block_count"]),
        (tiny().with("block_count", Value::F32(2.0)), &["llama.block_count", "integer", "f32"]),
        (tiny().with("block_count", string("two")), &["llama.block_count", "integer", "two"]),
        (tiny().with("block_count", u32s(&[2])), &["llama.block_count", "integer", "array"]),
        (tiny().without("embedding_length"), &["missing", "llama.embedding_length"]),
        (tiny().with("embedding_length", Value::U32(big)), &["llama.embedding_length", "4294967295"]),
        (tiny().without("context_length"), &["missing", "llama.context_length"]),
        (tiny().with("context_length", Value::U32(0)), &["llama.context_length", "got 0"]),
        (tiny().without("feed_forward_length"), &["missing", "llama.feed_forward_length"]),
        (tiny().with("feed_forward_length", u32s(&[100])), &["llama.feed_forward_length", "2 blocks", "got 1"]),
        (tiny().with("feed_forward_length", u32s(&[100, 0])), &["llama.feed_forward_length", "block 1", "got 0"]),
        (tiny().with("feed_forward_length", Value::Array(Array::F32(vec![1.5; 2]))), &["llama.feed_forward_length", "1.5"]),
        (tiny().without("attention.head_count"), &["missing", "llama.attention.head_count"]),
        (tiny().with("attention.head_count", Value::U32(0)), &["llama.attention.head_count", "got 0"]),
        (tiny().with("attention.head_count", Value::U32(big)), &["llama.attention.head_count", "4096"]),
        (tiny().with("attention.head_count_kv", Value::U32(0)), &["llama.attention.head_count_kv", "got 0"]),
        (tiny().with("attention.head_count_kv", Value::U32(4)), &["llama.attention.head_count_kv", "divisor", "6", "got 4"]),
        (tiny().with("attention.head_count_kv", u32s(&[2, 12])), &["llama.attention.head_count_kv", "block 1", "got 12"]),
        (tiny().with("attention.head_count_kv", u32s(&[])), &["llama.attention.head_count_kv", "2 blocks", "got 0"]),
        (tiny().with("attention.key_length", Value::U32(0)), &["llama.attention.key_length", "got 0"]),
        (tiny().with("attention.key_length", Value::U32(big)), &["llama.attention.key_length", "4096"]),
        (tiny().with("attention.value_length", Value::U32(16)), &["llama.attention.value_length", "12", "got 16"]),
        (tiny().with("attention.head_count", Value::U32(8)).without("attention.key_length"), &["llama.attention.head_count", "60", "got 8"]),
        (tiny().without("attention.layer_norm_rms_epsilon"), &["missing", "llama.attention.layer_norm_rms_epsilon"]),
        (tiny().with("attention.layer_norm_rms_epsilon", Value::F32(f32::NAN)), &["rms_epsilon", "finite"]),
        (tiny().with("attention.layer_norm_rms_epsilon", Value::F32(-1e-5)), &["rms_epsilon", "-0.00001"]),
        (tiny().with("rope.freq_base", Value::F32(0.0)), &["llama.rope.freq_base", "got 0"]),
        (tiny().with("rope.freq_base", Value::F32(f32::INFINITY)), &["llama.rope.freq_base", "finite"]),
        (tiny().with("rope.dimension_count", Value::U32(7)), &["llama.rope.dimension_count", "even", "got 7"]),
        (tiny().with("rope.dimension_count", Value::U32(16)), &["llama.rope.dimension_count", "12", "got 16"]),
        (tiny().with("rope.dimension_count", Value::U32(0)), &["llama.rope.dimension_count", "got 0"]),
        (tiny().with("rope.scaling.type", string("llama3")), &["llama.rope.scaling.type", "yarn", "rope_freqs.weight", "llama3"]),
        (tiny().with("rope.scaling.factor", Value::F32(-2.0)), &["llama.rope.scaling.factor", "-2"]),
        (tiny().with("tokenizer.ggml.tokens", u32s(&[1, 2])), &["tokenizer.ggml.tokens", "strings"]),
        (tiny().with("expert_count", Value::U32(8)), &["unsupported", "8 experts", "llama.expert_count"]),
        (tiny().with("attention.causal", Value::Bool(false)), &["unsupported", "embedding", "llama.attention.causal"]),
    ];
    let mut table = Table::new("nonsense");
    for (model, words) in cases {
        let edit = format!("{:?}", model.keys);
        table.row(
            &edit,
            match config(&model) {
                Ok(config) => Err(format!("accepted as {config:?}")),
                Err(error) => says(&error.to_string(), words),
            },
        );
    }
    table.finish();
}

#[test]
fn rope_scaling_rules() {
    let yarn = |factor, original_context| RopeScaling::Yarn {
        factor,
        original_context,
        beta_fast: 32.0,
        beta_slow: 1.0,
        ext_factor: 1.0,
    };
    let f32 = Value::F32;
    #[rustfmt::skip]
    let cases = [
        (tiny(), RopeScaling::None, 1.0),
        (tiny().with("rope.scaling.factor", f32(4.0)), RopeScaling::Linear { factor: 4.0 }, 1.0),
        (tiny().with("rope.scaling.factor", f32(0.0)), RopeScaling::None, 1.0),
        (tiny().with("rope.scaling.type", string("linear")).with("rope.scaling.factor", f32(4.0)), RopeScaling::Linear { factor: 4.0 }, 1.0),
        (tiny().with("rope.scaling.type", string("linear")), RopeScaling::None, 1.0),
        (tiny().with("rope.scale_linear", f32(2.0)), RopeScaling::Linear { factor: 2.0 }, 1.0),
        (tiny().with("rope.scaling.type", string("none")).with("rope.scaling.factor", f32(4.0)), RopeScaling::None, 1.0),
        (tiny().with("rope.scaling.attn_factor", f32(0.5)), RopeScaling::None, 0.5),
        (tiny().with("rope.scaling.type", string("yarn")), yarn(1.0, 128), 1.0),
        (tiny().with("rope.scaling.type", string("yarn")).with("rope.scaling.factor", f32(4.0)), yarn(4.0, 128), 1.1386294),
        (tiny().with("rope.scaling.type", string("yarn")).with("rope.scaling.factor", f32(4.0))
            .with("rope.scaling.original_context_length", Value::U32(32)).with("rope.scaling.attn_factor", f32(0.5)), yarn(4.0, 32), 0.5693147),
    ];
    let mut table = Table::new("rope scaling");
    for (model, scaling, magnitude) in cases {
        let edit = format!("{:?}", model.keys);
        let config = config(&model).expect("a valid model");
        let rope = Rope::new(&config.rope, None).expect("no factors");
        let ok = config.rope.scaling == scaling && (rope.magnitude - magnitude).abs() < 1e-6;
        table.row(&edit, if ok { Ok(()) } else { Err(format!("{:?}, magnitude {}", config.rope, rope.magnitude)) });
    }
    table.finish();
}

#[test]
fn frequencies() {
    let rope = |scaling| RopeConfig { dims: 8, base: 10000.0, pairing: Pairing::Halves, scaling, attn_factor: 1.0 };
    let inv_freq = |scaling| Rope::new(&rope(scaling), None).expect("no factors").inv_freq;
    assert_close("plain", &inv_freq(RopeScaling::None), &[1.0, 0.1, 0.01, 0.001], 0.0, 1e-6);
    assert_close("linear", &inv_freq(RopeScaling::Linear { factor: 4.0 }), &[0.25, 0.025, 0.0025, 0.00025], 0.0, 1e-6);

    // In 10000 tokens pair 0 turns 1592 times, pair 1 159 times, pair 2 16 times, pair 3 1.6 times. The ramp goes from
    // the pair below 32 turns (1.7, so 1) to the one above 1 turn (3.2, so 4): pairs 2 and 3 are 1/3 and 2/3 slow.
    let yarn =
        RopeScaling::Yarn { factor: 4.0, original_context: 10000, beta_fast: 32.0, beta_slow: 1.0, ext_factor: 1.0 };
    assert_close(
        "yarn",
        &inv_freq(yarn),
        &[1.0, 0.1, 0.01 * (1.0 - 0.75 / 3.0), 0.001 * (1.0 - 0.75 * 2.0 / 3.0)],
        0.0,
        1e-6,
    );

    let divided = Rope::new(&rope(RopeScaling::None), Some(&[1.0, 2.0, 4.0, 8.0])).expect("good factors");
    assert_close("factors", &divided.inv_freq, &[1.0, 0.05, 0.0025, 0.000125], 0.0, 1e-6);
    for (factors, words) in [
        (vec![1.0; 3], ["rope_freqs.weight", "4 numbers"]),
        (vec![1.0, 0.0, 1.0, 1.0], ["rope_freqs.weight", "above 0"]),
    ] {
        let error = Rope::new(&rope(RopeScaling::None), Some(&factors)).expect_err("bad factors").to_string();
        says(&error, &words).unwrap_or_else(|text| panic!("{text}"));
    }
}

#[test]
fn tensors_of_each_architecture() {
    for architecture in Architecture::ALL {
        for (tied, bias) in [(true, false), (false, true)] {
            let mut model = TinyModel::new(architecture, Format::F32, 1);
            (model.tied, model.qkv_bias, model.other_bias) = (tied, bias || model.qkv_bias, bias);
            let (gguf, names) = (model.gguf(), model.tensors().into_iter().map(|tensor| tensor.name));
            let config = Config::from_gguf(&gguf).expect("a valid model");
            let tensors = Tensors::find(&gguf, &config).expect("all tensors");
            assert_eq!(tensors.warnings, [""; 0]);
            let mut found: Vec<_> = tensors.found.iter().map(|found| found.slot.name.clone()).collect();
            let mut names: Vec<_> = names.collect();
            found.sort();
            names.sort();
            assert_eq!(found, names);
        }
    }
}

#[test]
fn tensors_that_are_wrong_or_absent() {
    type Change = fn(&mut Vec<TinyTensor>);
    type Words = &'static [&'static str];
    fn at<'a>(tensors: &'a mut [TinyTensor], name: &str) -> &'a mut TinyTensor {
        tensors.iter_mut().find(|tensor| tensor.name == name).expect("a tensor of the tiny model")
    }
    #[rustfmt::skip]
    // (what, the change, words of the warnings or of the error)
    let cases: Vec<(&str, Change, Result<Words, Words>)> = vec![
        ("no embedding", |t| t.retain(|t| t.name != "token_embd.weight"), Err(&["missing tensor token_embd.weight"])),
        ("no weights", |t| t.clear(), Err(&["token_embd.weight", "only a vocabulary"])),
        ("no norm", |t| t.retain(|t| t.name != "blk.1.ffn_norm.weight"), Err(&["missing tensor blk.1.ffn_norm.weight"])),
        ("swapped", |t| at(t, "blk.0.attn_k.weight").shape.reverse(), Err(&["blk.0.attn_k.weight", "60x24", "24x60"])),
        ("flat", |t| at(t, "blk.0.attn_k.weight").shape = vec![60 * 24], Err(&["blk.0.attn_k.weight", "60x24", "1440"])),
        ("ones at the end", |t| at(t, "output_norm.weight").shape = vec![60, 1, 1], Ok(&[])),
        ("one more", |t| at(t, "output_norm.weight").name = "blk.0.attn_norm_2.weight".into(), Err(&["output_norm.weight"])),
        ("a row too few", |t| { let e = at(t, "token_embd.weight"); e.shape[1] = 202; e.bytes.truncate(202 * 60 * 4) }, Err(&["token_embd.weight", "60x203", "60x202"])),
        ("bias of another length", |t| { let b = at(t, "blk.0.attn_q.bias"); b.shape[0] = 60; b.bytes.truncate(60 * 4) }, Err(&["blk.0.attn_q.bias", "72", "60"])),
        ("no bias", |t| t.retain(|t| t.name != "blk.1.attn_k.bias"), Ok(&["blk.1.attn_k.bias", "absent", "zero"])),
        ("one that nobody knows", |t| at(t, "blk.1.attn_k.bias").name = "blk.1.surprise".into(), Ok(&["blk.1.attn_k.bias", "blk.1.surprise", "not used"])),
    ];
    let mut model = TinyModel::new(Architecture::Qwen2, Format::F32, 1);
    model
        .keys
        .push(("tokenizer.ggml.tokens", Some(Value::Array(Array::String((0..203).map(|i| i.to_string()).collect())))));
    let mut table = Table::new("tensors");
    for (name, change, want) in cases {
        let mut tensors = model.tensors();
        change(&mut tensors);
        let gguf = model.gguf_of(&tensors);
        let config = Config::from_gguf(&gguf).expect("valid metadata");
        table.row(
            name,
            match (Tensors::find(&gguf, &config), want) {
                (Ok(found), Ok(words)) => says(&found.warnings.join("\n"), words),
                (Err(error), Err(words)) => says(&error.to_string(), words),
                (got, want) => Err(format!("{:?}, expected {want:?}", got.map(|found| found.warnings))),
            },
        );
    }
    table.finish();
}

/// A byte of the header changed at random: an error or a model that runs, never a panic.
#[test]
fn damaged_headers() {
    let model = TinyModel::new(Architecture::Qwen3, Format::Q8_0, 1);
    let file = model.bytes();
    let header = file.len() - model.tensors().iter().map(|tensor| tensor.bytes.len()).sum::<usize>();
    let mut random = Random::new(9);
    let (mut refused, mut ran) = (0, 0);
    for _ in 0..1000 {
        let mut damaged = file.clone();
        damaged[random.below(header as u32) as usize] = [0, 1, 2, 3, 127, 255][random.below(6) as usize];
        match Gguf::from_bytes(damaged).and_then(|gguf| ReferenceModel::<f32>::from_gguf(&gguf)) {
            Ok(mut model) => {
                model.append(&[1, 2]).expect("good ids");
                ran += 1;
            }
            Err(error) => {
                assert!(!error.to_string().is_empty());
                refused += 1;
            }
        }
    }
    assert!(refused > 50 && ran > 50, "{refused} refused, {ran} ran: the damage is too much or too little to tell");
}
