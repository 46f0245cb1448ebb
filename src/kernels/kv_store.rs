//! Writes the keys and values of a pass into the cache.

use super::KvFormat;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { KvStoreParams { vectors: u32, stride: u32, } }

/// The keys and values of one block, [context, KV, D] each.
pub struct KvCache {
    pub k: wgpu::Buffer,
    pub v: wgpu::Buffer,
    pub format: KvFormat,
}

/// k [T, KV, D], v [T, KV, D] -> the cache, from the frame's position on.
pub fn kv_store(plan: &mut PlanBuilder, label: &str, k: &Tensor, v: &Tensor, cache: &KvCache) -> Result<()> {
    assert!(k.cols == v.cols && k.cols.is_multiple_of(4), "{label}: keys and values are equal rows of whole vectors");
    let vectors = k.cols / 4;
    let params = KvStoreParams { vectors, stride: k.stride() / 4 };
    let key = KernelKey::new(&[&["frame.wgsl", cache.format.file(), "kv_store.wgsl"]]);
    let buffers = [("k", &k.buffer), ("v", &v.buffer), ("k_cache", &cache.k), ("v_cache", &cache.v)];
    plan.step(label, &key, params, &buffers, Grid::lanes(vectors), k)
}
