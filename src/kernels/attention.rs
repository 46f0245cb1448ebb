//! Causal grouped-query attention over the KV cache.

use super::quantize::quantize_joined;
use super::rope_kv::KvCache;
use super::{few_tokens, reduce};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    AttentionParams {
        group: u32,
        kv_heads: u32,
        context: u32,
        vectors: u32,
        q_stride: u32,
        split: u32,
        splits: u32,
        scale: f32,
    }
}
params! { AttentionMergeParams { heads: u32, vectors: u32, split: u32, splits: u32, y_stride: u32, } }

/// The largest head size that the kernels hold, in channels.
pub const MAX_HEAD_SIZE: u32 = 256;

/// Refuses heads that no attention kernel takes.
pub(crate) fn check_head_size(head_size: u32) -> Result<()> {
    if head_size <= MAX_HEAD_SIZE && head_size.is_multiple_of(4) {
        return Ok(());
    }
    let what = format!("a head size of {head_size}");
    Err(Error::Unsupported { what, hint: format!("Attention here takes multiples of 4 up to {MAX_HEAD_SIZE}") })
}

/// The most keys of a split that attention_token.wgsl holds the scores of.
const TOKEN_KEYS: u32 = 512;

/// How the keys of a pass are shared out among workgroups.
pub struct Splits {
    /// Keys of one workgroup.
    pub keys: u32,
    /// What a workgroup leaves where there are several: [T, H, splits, D / 4 + 1] vec4.
    pub(super) parts: wgpu::Buffer,
    /// Splits that `parts` has room for.
    pub(super) most: u32,
}

impl Splits {
    /// For passes of up to `tokens` tokens over up to `context` keys. A pass of more than few tokens has workgroups enough
    /// and is not split.
    pub fn new(gpu: &Gpu, tokens: u32, context: u32, heads: u32, head_size: u32) -> Result<Splits> {
        let keys = match gpu.profile().lanes {
            _ if tokens > few_tokens(gpu)[1] => u32::MAX,
            true => TOKEN_KEYS,
            false => 256,
        };
        Splits::of(gpu, tokens, context, heads, head_size, keys)
    }

    /// [`Splits::new`] with the caller's choice of keys.
    pub fn of(gpu: &Gpu, tokens: u32, context: u32, heads: u32, head_size: u32, keys: u32) -> Result<Splits> {
        let most = context.div_ceil(keys);
        let vectors =
            if most > 1 { tokens as u64 * heads as u64 * most as u64 * (head_size as u64 / 4 + 1) } else { 1 };
        Ok(Splits { keys, parts: gpu.buffer("parts of attention", vectors * 16)?, most })
    }
}

/// q [T, H, D], cache [KV, context, D] -> y [T, H, D]. Token t of the pass sees positions up to its own.
/// Where the keys need several workgroups a second step joins their parts. Where `bytes` [T, H * D] is given, that step is
/// there in any case and leaves bytes in it.
#[allow(clippy::too_many_arguments)] // an op takes what it takes
pub fn attention(
    plan: &mut PlanBuilder,
    label: &str,
    q: &Tensor,
    cache: &KvCache,
    kv_heads: u32,
    head_size: u32,
    splits: &Splits,
    y: &Tensor,
    bytes: Option<&Tensor>,
) -> Result<()> {
    assert!(q.cols == y.cols && q.cols.is_multiple_of(head_size), "{label}: q is whole heads of {head_size}");
    assert!(head_size.is_multiple_of(4) && head_size <= MAX_HEAD_SIZE, "{label}: heads of {head_size}");
    let heads = q.cols / head_size;
    let group = heads / kv_heads;
    let profile = plan.gpu.profile();
    let params = AttentionParams {
        group,
        kv_heads,
        context: cache.context,
        vectors: head_size / 4,
        q_stride: q.stride() / 4,
        split: splits.keys,
        splits: splits.most,
        scale: 1.0 / (head_size as f32).sqrt(),
    };
    let shared = [&["frame.wgsl"], cache.format.reading(), &["attend/params.wgsl"]].concat();
    let tiles = Grid { keys: splits.keys, rows_per_token: 1, ..Grid::default() };
    let fours = Grid { groups: kv_heads * group.div_ceil(4), tokens: 1, ..tiles };
    let [shorter, longer] = few_tokens(&plan.gpu);
    let (key, grid) = if profile.eights && plan.max_tokens <= longer && splits.keys <= TOKEN_KEYS {
        (KernelKey::new(&[&shared, &["attention_token.wgsl"]]).with("QUERIES", group.min(4)), fours)
    } else if profile.lanes {
        let spread = if profile.eights { "attend/subgroup8.wgsl" } else { "attend/direct.wgsl" };
        let key = KernelKey::new(&[&shared, &[spread, "attend/eight.wgsl", "attention_lane.wgsl"]]);
        let grid = Grid { groups: kv_heads, tokens: 8, rows_per_token: group, ..tiles };
        (key, grid)
    } else if plan.max_tokens > shorter {
        let key = KernelKey::new(&[&shared, &["attention_tile.wgsl"]]).with("CHUNKS", head_size.div_ceil(32));
        (key, Grid { groups: kv_heads, tokens: 32, rows_per_token: group, ..tiles })
    } else {
        (KernelKey::new(&[&shared, &[reduce(&plan.gpu), "attention.wgsl"]]), fours)
    };
    let buffers =
        [("q", &q.buffer), ("k_cache", &cache.k), ("v_cache", &cache.v), ("y", &y.buffer), ("parts", &splits.parts)];
    plan.step(label, &key, params, &buffers, grid, y)?;
    plan.note(format!("{heads} heads of {head_size}, {kv_heads} kv heads, {:?}", cache.format));
    plan.cost(Cost {
        key_bytes: 2 * cache.format.bytes((kv_heads * head_size) as u64),
        key_flops: 4 * q.cols as u64,
        ..Cost::default()
    });
    if let Some(bytes) = bytes {
        return quantize_joined(plan, &format!("{label}.bytes"), y, head_size, splits, bytes);
    }
    if splits.most > 1 {
        let params = AttentionMergeParams {
            heads,
            vectors: head_size / 4,
            split: splits.keys,
            splits: splits.most,
            y_stride: y.stride() / 4,
        };
        let grid = Grid { idle_keys: splits.keys, ..Grid::lanes(heads * head_size / 4) };
        let key = KernelKey::new(&[&["frame.wgsl", "attend/joined.wgsl", "attention_merge.wgsl"]]);
        let buffers = [("parts", &splits.parts), ("y", &y.buffer)];
        plan.step(label, &key, params, &buffers, grid, y)?;
    }
    Ok(())
}
