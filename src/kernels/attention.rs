//! Causal grouped-query attention over the KV cache.

use super::{kv_store::KvCache, reduce};
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { AttentionParams { group: u32, vectors: u32, kv_stride: u32, q_stride: u32, scale: f32, } }

/// The largest head size that the kernel holds, in channels.
pub const MAX_HEAD_SIZE: u32 = 256;

/// q [T, H, D], cache [context, KV, D] -> y [T, H, D]. Token t of the pass sees positions up to its own.
pub fn attention(plan: &mut PlanBuilder, label: &str, q: &Tensor, cache: &KvCache, kv_heads: u32, head_size: u32, y: &Tensor) -> Result<()> {
    assert!(q.cols == y.cols && q.cols.is_multiple_of(head_size), "{label}: q is whole heads of {head_size}");
    assert!(head_size.is_multiple_of(4) && head_size <= MAX_HEAD_SIZE, "{label}: heads of {head_size}");
    let heads = q.cols / head_size;
    let params = AttentionParams {
        group: heads / kv_heads,
        vectors: head_size / 4,
        kv_stride: kv_heads * head_size / 4,
        q_stride: q.stride() / 4,
        scale: 1.0 / (head_size as f32).sqrt(),
    };
    let key = KernelKey::new(&[&["frame.wgsl", cache.format.file(), reduce(&plan.gpu), "attention.wgsl"]]);
    let buffers = [("q", &q.buffer), ("k_cache", &cache.k), ("v_cache", &cache.v), ("y", &y.buffer)];
    plan.step(label, &key, params, &buffers, Grid { groups: heads, tokens: 1 }, y)
}
