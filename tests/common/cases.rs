//! The reference cases, run alike on every engine: the CPU reference and the GPU. An independent implementation
//! (float32 in numpy) made the numbers.

use super::{Table, close, data, find, ids, json, numbers, skipped};
use peregrine::formats::Format;
use peregrine::gguf::TensorType;
use peregrine::reference::ops;
use serde_json::Value as Json;
use std::path::{Path, PathBuf};

/// One sequence on a model.
pub trait Engine {
    /// Runs tokens through the model; the logits after the last one.
    fn append(&mut self, ids: &[u32]) -> Result<Vec<f32>, String>;
    /// Forgets all tokens.
    fn reset(&mut self);
}

/// Opens a model file, or says why not.
pub type Load<'a> = &'a dyn Fn(&Path) -> Result<Box<dyn Engine>, String>;

/// An engine. How far results may differ is the engine's: f32 throughout, or a lighter cache.
pub struct Loader<'a> {
    pub load: Load<'a>,
    /// Of logits.
    pub tolerance: f32,
    /// Where the reference's two best logits are closer than this, either may be chosen.
    pub margin: f32,
}

/// An error with its sources.
pub fn chain(error: &dyn std::error::Error) -> String {
    let source = error.source().map(|source| format!(": {}", chain(source)));
    error.to_string() + &source.unwrap_or_default()
}

impl Loader<'_> {
    /// The reference's own tokens are fed, so that every step is compared, whatever an earlier one chose.
    fn greedy(
        &self,
        engine: &mut dyn Engine,
        mut logits: Vec<f32>,
        want: &[u32],
        margins: Option<&Json>,
    ) -> Result<(), String> {
        for (step, &id) in want.iter().enumerate() {
            let (top, values) = ops::top_k(&logits, 2);
            let margin = margins.map_or(values[0] - values[1], |list| list[step].as_f64().expect("a margin") as f32);
            if top[0] != id && margin > self.margin {
                return Err(format!("greedy step {step}: id {} for {id}, with a margin of {margin}", top[0]));
            }
            logits = engine.append(&[id])?;
        }
        Ok(())
    }

    /// The logits that a reference lists as [[id, logit], ..].
    fn top(&self, logits: &[f32], want: &Json) -> Result<(), String> {
        for pair in want.as_array().expect("a list of pairs") {
            let (id, want) = (pair[0].as_u64().expect("an id") as usize, pair[1].as_f64().expect("a logit") as f32);
            close(&format!("logit of id {id}"), &[logits[id]], &[want], self.tolerance, 0.0)?;
        }
        Ok(())
    }

    /// Random llama, qwen2 and qwen3 models in many formats.
    pub fn tiny_models(&self) {
        let Some(reference) = json("tiny_reference.json") else { return };
        let mut table = Table::new("tiny models");
        for (name, case) in reference.as_object().expect("an object") {
            let mut types = case["tensor_types"].as_object().expect("types").keys();
            if let Some(foreign) = types.find(|name| TensorType::from_name(name).and_then(Format::from_type).is_none())
            {
                eprintln!("  {name}: {foreign} is not among our formats");
                continue;
            }
            let Some(path) = data(&format!("tiny/{name}.gguf")) else { continue };
            let run = || {
                let mut engine = (self.load)(&path)?;
                let logits = engine.append(&ids(&case["ids"]))?;
                close("logits", &logits, &numbers(&case["logits_last"]), self.tolerance, 0.0)?;
                self.greedy(&mut *engine, logits, &ids(&case["greedy16"]), None)
            };
            table.row(name, run());
        }
        table.finish();
    }

    /// A feed-forward length that is no multiple of 32.
    pub fn stories260k(&self) {
        let (Some(reference), Some(path)) = (json("stories260K_reference.json"), data("stories260K.F32.gguf")) else {
            return;
        };
        let mut table = Table::new("stories260K");
        for case in reference.as_array().expect("a list") {
            let run = || {
                let mut engine = (self.load)(&path)?;
                let logits = engine.append(&ids(&case["token_ids"]))?;
                close("logits", &logits, &numbers(&case["logits_last"]), self.tolerance, 0.0)?;
                self.greedy(&mut *engine, logits, &ids(&case["greedy64"]), None)
            };
            table.row(&case["prompt"].to_string(), run());
        }
        table.finish();
    }

    /// The model that is part of the program.
    pub fn built_in_model(&self) {
        let Some(reference) = json("tales_reference.json").or_else(|| json("tales/tales_reference.json")) else {
            return;
        };
        let path = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/models/tales-2m.Q8_0.gguf"));
        let mut table = Table::new("built-in model");
        for case in reference["prompts"].as_array().expect("a list") {
            let want = &case["numpy_f32_on_q8_0"];
            let run = || {
                let mut engine = (self.load)(&path)?;
                let logits = engine.append(&ids(&case["token_ids"]))?;
                self.top(&logits, &want["top10_last"])?;
                self.greedy(&mut *engine, logits, &ids(&want["greedy32"]), None)
            };
            table.row(&case["prompt"].to_string(), run());
        }
        table.finish();
    }

    /// SmolLM2-135M-Instruct, the first `steps` greedy tokens of each prompt.
    pub fn smollm2(&self, steps: usize) {
        let (Some(reference), Some(path)) =
            (json("smollm2_reference.json"), data("fetched/SmolLM2-135M-Instruct.Q4_1.gguf"))
        else {
            return;
        };
        let mut engine = (self.load)(&path).expect("a valid model");
        let mut table = Table::new("SmolLM2");
        for case in reference["prompts"].as_array().expect("a list") {
            let mut run = || {
                engine.reset();
                let logits = engine.append(&ids(&case["token_ids"]))?;
                self.top(&logits, &case["top10_last"])?;
                self.greedy(&mut *engine, logits, &ids(&case["greedy32"])[..steps], Some(&case["greedy_margins"]))
            };
            table.row(&case["name"].to_string(), run());
        }
        table.finish();
    }

    /// What real files do, as far as it concerns config, tensors and logits.
    pub fn variants(&self) {
        let Some(reference) = json("variants/variants.json") else { return };
        let reference = reference.as_array().expect("a list");
        let case_of = |file: &str| reference.iter().find(|case| case["file"] == file).expect("a case of variants.json");
        let mut table = Table::new("variants");
        let mut absent = 0;
        for case in reference {
            let file = case["file"].as_str().expect("a file name");
            let error = ERRORS.iter().find(|(name, _)| *name == file);
            // An error is not the only good answer where the file means what another one says clearly.
            let means =
                case["also_ok"].as_str().and_then(|text| text.strip_prefix("same_logits as ")?.split(' ').next());
            let logits = if case["expect"] == "error" { means.map(case_of) } else { Some(case) };
            if error.is_none() && logits.is_none() {
                continue; // for the tests of the reader or the tokenizer
            }
            let Some(path) = find(&format!("variants/{file}")) else {
                absent += 1;
                continue;
            };
            let outcome = match ((self.load)(&path), error, logits) {
                (Err(text), Some((_, words)), _) => match words.iter().find(|word| !text.contains(**word)) {
                    Some(word) => Err(format!("{word:?} is not in {text:?}")),
                    None => Ok(()),
                },
                (Ok(_), Some(_), _) => Err(format!("loads, expected an error about {}", case["error_about"])),
                (Ok(mut engine), None, Some(case)) => {
                    engine.append(&ids(&case["prompt_ids"])).and_then(|logits| self.top(&logits, &case["top5"]))
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
