//! What a training pass works in: activations, kept or shared, and the gradients on their way down.

use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernels::linear::Squares;
use crate::model::Model;
use crate::model::state::{Activations, BlockActivations, Dropout, Operand, SequenceActivations, Sequences};
use crate::tensor::Tensor;
use std::cell::RefCell;
use std::collections::HashMap;

/// Bytes of the logits that are made at once.
const LOGITS_BYTES: u64 = 32 << 20;

/// Gradients of activations; those of one shape and purpose are one tensor for all blocks. T is the most tokens of a pass.
pub(super) struct Workspace {
    gpu: Gpu,
    tokens: u32,
    pub dx: Tensor,           // [T, C] of the residual stream
    pub dnormed: Tensor,      // [T, C] of a norm's results
    pub inverses: Tensor,     // [T, 1]
    pub seen: wgpu::Buffer,   // [T, 4] f32: kernels::cross_entropy
    pub labels: wgpu::Buffer, // [T] u32
    pub shares: wgpu::Buffer, // [T] f32: what a token's loss weighs
    shared: RefCell<HashMap<(&'static str, u32), Tensor>>,
}

impl Workspace {
    pub fn new(model: &Model, tokens: u32) -> Result<Workspace> {
        let (gpu, c) = (model.gpu(), model.config().embedding_length);
        Ok(Workspace {
            gpu: gpu.clone(),
            tokens,
            dx: Tensor::new(gpu, "dx", tokens, c)?,
            dnormed: Tensor::new(gpu, "dnormed", tokens, c)?,
            inverses: Tensor::new(gpu, "inverses", tokens, 1)?,
            seen: gpu.buffer("seen", tokens as u64 * 16)?,
            labels: gpu.buffer("labels", tokens as u64 * 4)?,
            shares: gpu.buffer("shares", tokens as u64 * 4)?,
            shared: RefCell::default(),
        })
    }

    /// The tensor for such a gradient, as wide as `of`.
    pub fn like(&self, of: &Tensor, label: &'static str) -> Result<Tensor> {
        self.like_columns(of.cols, label)
    }

    pub fn like_columns(&self, cols: u32, label: &'static str) -> Result<Tensor> {
        let mut shared = self.shared.borrow_mut();
        if let Some(tensor) = shared.get(&(label, cols)) {
            return Ok(tensor.clone());
        }
        let tensor = Tensor::new(&self.gpu, label, self.tokens, cols)?;
        shared.insert((label, cols), tensor.clone());
        Ok(tensor)
    }
}

/// Ids of the vocabulary whose logits are made at once.
pub(super) fn shard(model: &Model, tokens: u32) -> u32 {
    let most = LOGITS_BYTES.min(model.gpu().max_binding()) / 4 / tokens as u64;
    (most as u32 / 64 * 64).clamp(64, model.config().vocab_size.next_multiple_of(64)).min(model.config().vocab_size)
}

pub(super) fn sequences(gpu: &Gpu, tokens: u32) -> Result<Sequences> {
    Ok(Sequences {
        positions: gpu.buffer("positions", tokens as u64 * 4)?,
        bounds: gpu.buffer("bounds", tokens as u64 * 8)?,
    })
}

/// Activations of whole sequences. With `kept` every block has its own of all that the backward pass will ask for; without,
/// its own of what goes in alone.
pub(super) fn activations(model: &Model, tokens: u32, kept: bool, dropout: f32) -> Result<Activations> {
    let (gpu, config, adapters) = (model.gpu(), model.config(), model.adapters());
    let c = config.embedding_length;
    let tensor = |label: &str, cols: u32| Tensor::new(gpu, label, tokens, cols);
    let operand = |label: &str, cols: u32| tensor(label, cols).map(Operand::from);
    let mut x = tensor("x", c)?;
    let adapted = |b: usize| adapters.map_or(&[][..], |adapters| &adapters.blocks[b]);
    let mut block: Vec<BlockActivations> = Vec::new();
    for (b, w) in model.weights().blocks.iter().enumerate() {
        let (q, kv, f) = (config.q_length(b), config.kv_length(b), config.feed_forward[b]);
        let out = tensor("x", c)?;
        let normed = w.attn_q_norm.is_some() || w.attn_k_norm.is_some();
        let same = |other: &&BlockActivations| {
            (other.attn.floats.cols, other.qkv.cols, other.swiglu.floats.cols) == (q, q + 2 * kv, f)
        };
        let other = block.iter().find(same).cloned();
        let as_low = |other: &BlockActivations| {
            other.low.len() == adapted(b).len() && other.low.iter().zip(adapted(b)).all(|(low, w)| low.cols == w.a.rows)
        };
        let shared = other.clone().filter(|other| !kept && as_low(other));
        block.push(match shared {
            Some(shared) => BlockActivations { x: x.clone(), out: out.clone(), ..shared },
            None => {
                let low = adapters.map_or(Ok(Vec::new()), |adapters| adapters.low(gpu, b, tokens))?;
                let dropped = adapted(b).iter().filter(|_| dropout > 0.0).map(|w| tensor("dropped", w.a.cols));
                BlockActivations {
                    x: x.clone(),
                    attn_norm: operand("attn_norm", c)?,
                    // only the norms' backward pass asks for it
                    qkv: match other.filter(|_| !normed) {
                        Some(other) => other.qkv,
                        None => tensor("qkv", q + 2 * kv)?,
                    },
                    q: tensor("turned", q + 2 * kv)?,
                    attn: operand("attn", q)?,
                    mid: tensor("mid", c)?,
                    ffn_norm: operand("ffn_norm", c)?,
                    gate_up: tensor("gate_up", 2 * f)?,
                    keeps_gate_up: true,
                    swiglu: operand("swiglu", f)?,
                    out: out.clone(),
                    splits: None,
                    sequence: Some(SequenceActivations {
                        inverses: tensor("inverses", (q + kv) / config.head_size)?,
                        log_sums: gpu.buffer("log_sums", tokens as u64 * (q / config.head_size) as u64 * 4)?,
                    }),
                    low,
                    dropped: dropped.collect::<Result<_>>()?,
                }
            }
        });
        x = out;
    }
    let seed = gpu.buffer("dropout seed", 4)?;
    Ok(Activations {
        ids: gpu.buffer("ids", tokens as u64 * 4)?,
        x,
        normed: operand("normed", c)?,
        squares: Squares::new(gpu, c)?,
        block,
        last: tensor("last", c)?,
        logits: tensor("logits", shard(model, tokens))?,
        dropout: (dropout > 0.0).then_some(Dropout { probability: dropout, seed }),
    })
}
