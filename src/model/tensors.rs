//! The tensors of a model: names, shapes and formats that the config asks for, found in the file and checked.
//! The GPU loader and the CPU reference both read this table.

use super::config::{Architecture, Config};
use crate::error::{Error, Result};
use crate::formats::Format;
use crate::gguf::{Gguf, TensorInfo, dims};
use std::collections::HashSet;

/// What a tensor does, which decides the formats that it may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Rows that are gathered or multiplied with: any format.
    Matrix,
    /// Norm gains, biases and frequency factors: F32, F16 or BF16.
    Vector,
}

/// A place for a tensor in the model.
#[derive(Debug, Clone, PartialEq)]
pub struct Slot {
    pub name: String,
    /// In GGUF's order: shape[0] is the length of a row.
    pub shape: Vec<u64>,
    pub role: Role,
    pub need: Need,
}

/// What it means when the file lacks a tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    Required,
    /// The architecture has it as a rule; its absence is worth a warning.
    Usual,
    Optional,
}

/// A slot with what the file holds for it.
#[derive(Debug, Clone)]
pub struct Found<'a> {
    pub slot: Slot,
    pub info: &'a TensorInfo,
    pub format: Format,
}

/// All tensors of a model that the file holds, in the order of [`slots`].
#[derive(Debug, Clone)]
pub struct Tensors<'a> {
    pub found: Vec<Found<'a>>,
    /// Tensors that no step of the model reads, and usual ones that are absent: to be shown, not fatal.
    pub warnings: Vec<String>,
}

impl<'a> Tensors<'a> {
    /// Finds every tensor and checks shape and format, before any of them is read.
    /// A required one that is absent is [`Error::MissingTensor`], a wrong one [`Error::Tensor`].
    pub fn find(gguf: &'a Gguf, config: &Config) -> Result<Tensors<'a>> {
        let mut tensors = Tensors { found: Vec::new(), warnings: Vec::new() };
        for slot in slots(config) {
            match gguf.tensor(&slot.name) {
                Some(info) => tensors.found.push(Found { format: check(&slot, info)?, slot, info }),
                None if slot.need == Need::Required => return Err(missing(gguf, slot.name)),
                None if slot.need == Need::Usual => {
                    let architecture = config.architecture.name();
                    tensors.warnings.push(format!(
                        "tensor {} is absent, though {architecture} models have it; it is taken as zero",
                        slot.name
                    ));
                }
                None => {}
            }
        }
        let used: HashSet<&str> = tensors.found.iter().map(|found| found.slot.name.as_str()).collect();
        let unused = gguf.tensors().iter().filter(|info| !used.contains(info.name.as_str()));
        let unused = unused.map(|info| format!("tensor {} is not used: no step of this model reads it", info.name));
        tensors.warnings.extend(unused.collect::<Vec<_>>());
        Ok(tensors)
    }
}

/// Every tensor that a model of this config may have, in the order in which a token meets them.
///
/// What is optional here is computed with where the file has it, whatever the architecture: InternLM and others ship
/// as `llama` with biases. An absent bias is zero, also in qwen2, files of which lack some of theirs. Without
/// `output.weight` the embedding serves as the output head.
pub fn slots(config: &Config) -> Vec<Slot> {
    let (c, d, v) = (config.embedding_length as u64, config.head_size as u64, config.vocab_size as u64);
    let qkv_bias = if config.architecture == Architecture::Qwen2 { Need::Usual } else { Need::Optional };
    let head_norm = if config.architecture == Architecture::Qwen3 { Need::Required } else { Need::Optional };

    let mut slots = Vec::new();
    let mut slot = |name: &str, shape: &[u64], role, need| {
        slots.push(Slot { name: name.into(), shape: shape.into(), role, need });
    };
    slot("token_embd.weight", &[c, v], Role::Matrix, Need::Required);
    slot("rope_freqs.weight", &[config.rope.dims as u64 / 2], Role::Vector, Need::Optional);
    for block in 0..config.block_count as usize {
        let (q, kv) = (config.q_length(block) as u64, config.kv_length(block) as u64);
        let f = config.feed_forward[block] as u64;

        let mut norm = |name: &str, length: u64, need: Need| {
            slot(&format!("blk.{block}.{name}.weight"), &[length], Role::Vector, need);
        };
        norm("attn_norm", c, Need::Required);
        norm("attn_q_norm", d, head_norm);
        norm("attn_k_norm", d, head_norm);
        norm("ffn_norm", c, Need::Required);

        let mut linear = |name: &str, from: u64, to: u64, bias: Need| {
            slot(&format!("blk.{block}.{name}.weight"), &[from, to], Role::Matrix, Need::Required);
            slot(&format!("blk.{block}.{name}.bias"), &[to], Role::Vector, bias);
        };
        linear("attn_q", c, q, qkv_bias);
        linear("attn_k", c, kv, qkv_bias);
        linear("attn_v", c, kv, qkv_bias);
        linear("attn_output", q, c, Need::Optional);
        linear("ffn_gate", c, f, Need::Optional);
        linear("ffn_up", c, f, Need::Optional);
        linear("ffn_down", f, c, Need::Optional);
    }
    slot("output_norm.weight", &[c], Role::Vector, Need::Required);
    slot("output.weight", &[c, v], Role::Matrix, Need::Optional);
    slots
}

fn check(slot: &Slot, info: &TensorInfo) -> Result<Format> {
    let bad = |expected: String, got: String| Err(Error::Tensor { name: slot.name.clone(), expected, got });
    // ggml pads shapes with ones, and some writers leave them there.
    let given = &info.shape[..info.shape.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1)];
    let wanted = &slot.shape[..slot.shape.iter().rposition(|&dim| dim != 1).map_or(1, |last| last + 1)];
    if given != wanted {
        return bad(format!("shape {}", dims(&slot.shape)), format!("shape {}", dims(&info.shape)));
    }
    let allowed = |format: &Format| slot.role == Role::Matrix || format.block_weights() == 1;
    match Format::from_type(info.kind).filter(allowed) {
        Some(format) => Ok(format),
        None => {
            let names: Vec<_> =
                Format::ALL.iter().filter(|format| allowed(format)).map(|format| format.name()).collect();
            bad(format!("one of the formats {}", names.join(", ")), info.kind.name().into())
        }
    }
}

fn missing(gguf: &Gguf, name: String) -> Error {
    let hint = match gguf.tensors().len() {
        0 => "this file holds only a vocabulary, no weights",
        _ => "the file is incomplete or of another architecture than it says; convert or download it again",
    };
    Error::MissingTensor { name, hint: hint.into() }
}
