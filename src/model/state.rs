//! State: what changes while a model runs. Activations of one pass, and the keys and values of all positions so far.

use super::config::Config;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernels::KvFormat;
use crate::kernels::kv_store::KvCache;
use crate::tensor::Tensor;

/// One block's worth of activations, used by every block in turn. T is the most tokens of a pass.
pub struct Activations {
    pub ids: wgpu::Buffer, // [T] u32
    pub x: Tensor,         // [T, C] the residual stream
    pub normed: Tensor,    // [T, C]
    pub block: Vec<BlockActivations>,
    pub branch: Tensor, // [T, C] what a branch adds to the stream
    pub logits: Tensor, // [rows, V]
}

/// The activations whose width can differ from block to block; blocks of equal width share buffers.
#[derive(Clone)]
pub struct BlockActivations {
    pub q: Tensor,        // [T, H, D]
    pub k: Tensor,        // [T, KV, D]
    pub q_normed: Tensor, // [T, H, D]
    pub k_normed: Tensor, // [T, KV, D]
    pub v: Tensor,        // [T, KV, D]
    pub attn: Tensor,     // [T, H, D]
    pub gate: Tensor,     // [T, F]
    pub up: Tensor,       // [T, F]
    pub swiglu: Tensor,   // [T, F]
}

impl Activations {
    /// Room for passes of `tokens` tokens, with logits for `logit_rows` of them.
    pub fn new(gpu: &Gpu, config: &Config, tokens: u32, logit_rows: u32) -> Result<Activations> {
        let c = config.embedding_length;
        let tensor = |label: &str, cols: u32| Tensor::new(gpu, label, tokens, cols);
        let mut block: Vec<BlockActivations> = Vec::new();
        for b in 0..config.block_count as usize {
            let (q, kv, f) = (config.q_length(b), config.kv_length(b), config.feed_forward[b]);
            let same = block.iter().find(|other| (other.q.cols, other.k.cols, other.gate.cols) == (q, kv, f)).cloned();
            block.push(match same {
                Some(same) => same,
                None => BlockActivations {
                    q: tensor("q", q)?,
                    k: tensor("k", kv)?,
                    q_normed: tensor("q_normed", q)?,
                    k_normed: tensor("k_normed", kv)?,
                    v: tensor("v", kv)?,
                    attn: tensor("attn", q)?,
                    gate: tensor("gate", f)?,
                    up: tensor("up", f)?,
                    swiglu: tensor("swiglu", f)?,
                },
            });
        }
        Ok(Activations {
            ids: gpu.buffer("ids", tokens as u64 * 4)?,
            x: tensor("x", c)?,
            normed: tensor("normed", c)?,
            block,
            branch: tensor("branch", c)?,
            logits: Tensor::new(gpu, "logits", logit_rows, config.vocab_size)?,
        })
    }
}

/// A cache for every block, `context` positions each.
pub fn kv_caches(gpu: &Gpu, config: &Config, context: u32, format: KvFormat) -> Result<Vec<KvCache>> {
    let cache = |b: usize| {
        let bytes = context as u64 * config.kv_length(b) as u64 * format.bytes() as u64;
        let k = gpu.buffer(&format!("blk.{b} keys for a context of {context}"), bytes)?;
        let v = gpu.buffer(&format!("blk.{b} values for a context of {context}"), bytes)?;
        Ok(KvCache { k, v, format })
    };
    (0..config.block_count as usize).map(cache).collect()
}
