//! State: what changes while a model runs. Activations of one pass, and the keys and values of all positions so far.

use super::config::Config;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernels::KvFormat;
use crate::kernels::attention::Splits;
use crate::kernels::linear::Squares;
use crate::kernels::rope_kv::KvCache;
use crate::tensor::{Element, Tensor};
use crate::weight::Weight;
use std::sync::Arc;

/// One block's worth of activations, used by every block in turn. T is the most tokens of a pass.
pub struct Activations {
    pub ids: wgpu::Buffer, // [T] u32
    pub x: Tensor,         // [T, C] the residual stream
    pub normed: Operand,   // [T, C]
    pub squares: Squares,  // of x, in a pass of one token
    pub block: Vec<BlockActivations>,
    pub last: Tensor,   // [rows, C] x normed, for the logits
    pub logits: Tensor, // [rows, V]
}

/// The activations whose width can differ from block to block; blocks of equal width share buffers.
#[derive(Clone)]
pub struct BlockActivations {
    pub qkv: Tensor,     // [T, H + KV + KV, D]
    pub q: Tensor,       // [T, H, D] normed and turned
    pub attn: Operand,   // [T, H, D]
    pub gate_up: Tensor, // [T, 2, F] where swiglu is a step of its own, else [1, 2, F]
    pub swiglu: Operand, // [T, F]
    pub splits: Arc<Splits>,
}

/// What a matrix is multiplied with: floats, or bytes where the device computes faster with them.
#[derive(Clone)]
pub struct Operand {
    pub floats: Tensor,
    pub bytes: Option<Tensor>,
}

impl Operand {
    /// The form that suits the matrix.
    pub fn of(&self, w: &Weight) -> &Tensor {
        self.bytes_for(w).unwrap_or(&self.floats)
    }

    /// The bytes, if the matrix is to be multiplied with them.
    pub fn bytes_for(&self, w: &Weight) -> Option<&Tensor> {
        self.bytes.as_ref().filter(|_| w.is_quantized())
    }
}

impl Activations {
    /// Room for passes of `tokens` tokens over up to `context` positions; `logits` are of all of them or of the last.
    /// With `int8` matrices are multiplied with bytes.
    pub fn new(
        gpu: &Gpu,
        config: &Config,
        weights: &Weights,
        tokens: u32,
        context: u32,
        logits: Tensor,
        int8: bool,
    ) -> Result<Activations> {
        let c = config.embedding_length;
        let tensor = |label: &str, cols: u32| Tensor::new(gpu, label, tokens, cols);
        let operand = |label: &str, cols: u32| {
            let bytes = int8.then(|| Tensor::of(gpu, &format!("{label} in bytes"), tokens, cols, Element::Bytes));
            Ok::<_, Error>(Operand { floats: tensor(label, cols)?, bytes: bytes.transpose()? })
        };
        let mut block: Vec<BlockActivations> = Vec::new();
        for (b, w) in weights.blocks.iter().enumerate() {
            let (q, kv, f) = (config.q_length(b), config.kv_length(b), config.feed_forward[b]);
            let gate_up_rows = if w.ffn_gate_up.alternating { 1 } else { tokens };
            let same = |other: &&BlockActivations| {
                (other.q.cols, other.qkv.cols, other.swiglu.floats.cols) == (q, q + 2 * kv, f)
                    && other.gate_up.rows == gate_up_rows
            };
            block.push(match block.iter().find(same).cloned() {
                Some(same) => same,
                None => BlockActivations {
                    qkv: tensor("qkv", q + 2 * kv)?,
                    q: tensor("q", q)?,
                    attn: operand("attn", q)?,
                    gate_up: Tensor::new(gpu, "gate_up", gate_up_rows, 2 * f)?,
                    swiglu: operand("swiglu", f)?,
                    splits: Arc::new(Splits::new(gpu, tokens, context, q / config.head_size, config.head_size)?),
                },
            });
        }
        Ok(Activations {
            ids: gpu.buffer("ids", tokens as u64 * 4)?,
            x: tensor("x", c)?,
            normed: operand("normed", c)?,
            squares: Squares::new(gpu, c)?,
            block,
            last: Tensor::new(gpu, "last", logits.rows, c)?,
            logits,
        })
    }
}

/// A cache for every block, `context` positions each.
pub fn kv_caches(gpu: &Gpu, config: &Config, context: u32, format: KvFormat) -> Result<Vec<KvCache>> {
    let cache = |b: usize| {
        let bytes = context as u64 * format.bytes(config.kv_length(b) as u64);
        let k = gpu.buffer(&format!("blk.{b} keys for a context of {context}"), bytes)?;
        let v = gpu.buffer(&format!("blk.{b} values for a context of {context}"), bytes)?;
        Ok(KvCache { k, v, format, context })
    };
    (0..config.block_count as usize).map(cache).collect()
}
