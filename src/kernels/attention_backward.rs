//! Attention over whole sequences and its gradients, for training. Tokens of several sequences lie one after another; a
//! token sees its own sequence up to itself. [`attention_sequence`] keeps the logarithms of the softmaxes' sums, from which
//! [`attention_dq`] and then [`attention_dkv`] make the probabilities anew.

use super::attention::MAX_HEAD_SIZE;
use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    AttentionSequenceParams {
        heads: u32,
        kv_heads: u32,
        head_size: u32,
        qkv_stride: u32,
        y_stride: u32,
        scale: f32,
    }
}

/// The shape of attention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Heads {
    /// H, a multiple of KV.
    pub heads: u32,
    /// KV
    pub kv_heads: u32,
    /// D, at most 256.
    pub head_size: u32,
}

impl Heads {
    fn params(self, label: &str, qkv: &Tensor, y: &Tensor) -> AttentionSequenceParams {
        let Heads { heads, kv_heads, head_size } = self;
        assert!(
            qkv.cols == (heads + 2 * kv_heads) * head_size && y.cols == heads * head_size,
            "{label}: qkv has {} channels and y {}, for {heads} + 2 x {kv_heads} heads of {head_size}",
            qkv.cols,
            y.cols
        );
        assert!(
            head_size <= MAX_HEAD_SIZE && heads.is_multiple_of(kv_heads),
            "{label}: heads of {head_size}, {heads} on {kv_heads}"
        );
        let scale = 1.0 / (head_size as f32).sqrt();
        AttentionSequenceParams { heads, kv_heads, head_size, qkv_stride: qkv.stride(), y_stride: y.stride(), scale }
    }

    /// Matrix products of one pass over the keys.
    fn cost(self, products: u64) -> Cost {
        let Heads { heads, kv_heads, head_size } = self;
        Cost {
            token_bytes: (heads + 2 * kv_heads) as u64 * head_size as u64 * 4,
            key_flops: products * 2 * heads as u64 * head_size as u64,
            ..Cost::default()
        }
    }
}

/// Which of the two versions of each kernel.
#[derive(Clone, Copy)]
enum Version {
    /// A workgroup has one query or key.
    Groups,
    /// For processors that emulate a GPU: a lane has one.
    Lanes,
}

impl Version {
    fn choose(plan: &PlanBuilder, shape: Heads) -> Version {
        match plan.gpu.profile().lanes && shape.head_size.is_multiple_of(32) {
            true => Version::Lanes,
            false => Version::Groups,
        }
    }

    /// The pipeline that ends with such files.
    fn key(self, plan: &PlanBuilder, files: &[&'static str]) -> KernelKey {
        let profile = plan.gpu.profile();
        let spread = if profile.eights { "attend/subgroup8.wgsl" } else { "attend/direct.wgsl" };
        let lanes =
            ["frame.wgsl", "attend/sequence_params.wgsl", "attend/sequence_lane.wgsl", "attend/eight.wgsl", spread];
        match self {
            Version::Groups => {
                KernelKey::new(&[&[reduce(&plan.gpu), "attend/sequence_params.wgsl", "attend/sequence.wgsl"], files])
            }
            Version::Lanes => KernelKey::new(&[&lanes, files]),
        }
    }

    /// For every query.
    fn queries(self, shape: Heads) -> Grid {
        let Heads { heads, kv_heads, .. } = shape;
        match self {
            Version::Groups => Grid::tiles(heads, 1),
            Version::Lanes => Grid { rows_per_token: heads / kv_heads, ..Grid::tiles(kv_heads, 8) },
        }
    }

    /// For every key.
    fn keys(self, shape: Heads) -> Grid {
        match self {
            Version::Groups => Grid::tiles(shape.kv_heads, 1),
            Version::Lanes => Grid::tiles(shape.kv_heads, 8),
        }
    }
}

/// qkv [T, H + KV + KV, D] turned by RoPE, bounds [T] (first token of its sequence, first past it; u32 each)
/// -> y [T, H, D], log_sums [T, H] (f32).
pub fn attention_sequence(
    plan: &mut PlanBuilder,
    label: &str,
    shape: Heads,
    bounds: &wgpu::Buffer,
    qkv: &Tensor,
    y: &Tensor,
    log_sums: &wgpu::Buffer,
) -> Result<()> {
    let params = shape.params(label, qkv, y);
    let buffers = [("bounds", bounds), ("qkv", &qkv.buffer), ("y", &y.buffer), ("log_sums", log_sums)];
    let version = Version::choose(plan, shape);
    let key = match version {
        Version::Groups => version.key(plan, &["attention_sequence.wgsl"]),
        Version::Lanes => version.key(plan, &["attention_sequence_lane.wgsl"]),
    };
    plan.step(label, &key, params, &buffers, version.queries(shape), y)?;
    plan.cost(shape.cost(2));
    Ok(())
}

/// What the gradients of [`attention_sequence`] are made from and written to.
#[derive(Clone, Copy)]
pub struct AttentionBackward<'a> {
    pub shape: Heads,
    pub bounds: &'a wgpu::Buffer,   // as attention_sequence takes them
    pub qkv: &'a Tensor,            // the same
    pub dy: &'a Tensor,             // [T, H, D]
    pub log_sums: &'a wgpu::Buffer, // as attention_sequence left them
    pub means: &'a wgpu::Buffer,    // [T, H] f32, from attention_dq to attention_dkv
    pub dqkv: &'a Tensor,           // [T, H + KV + KV, D]
}

/// y [T, H, D] of [`attention_sequence`] -> the queries' part of dqkv, means.
pub fn attention_dq(plan: &mut PlanBuilder, label: &str, of: AttentionBackward, y: &Tensor) -> Result<()> {
    let version = Version::choose(plan, of.shape);
    let key = match version {
        Version::Groups => version.key(plan, &["attention_dq.wgsl"]),
        Version::Lanes => version.key(plan, &["attend/dqkv_lane.wgsl", "attention_dq_lane.wgsl"]),
    };
    of.step(plan, label, &key, Some(y), version.queries(of.shape), 3)
}

/// After [`attention_dq`] -> the keys' and values' part of dqkv.
pub fn attention_dkv(plan: &mut PlanBuilder, label: &str, of: AttentionBackward) -> Result<()> {
    let version = Version::choose(plan, of.shape);
    let key = match version {
        Version::Groups => version.key(plan, &["attention_dkv.wgsl"]),
        Version::Lanes => version.key(plan, &["attend/dqkv_lane.wgsl", "attention_dkv_lane.wgsl"]),
    };
    of.step(plan, label, &key, None, version.keys(of.shape), 4)
}

impl AttentionBackward<'_> {
    /// `products` are the matrix products of one pass over the keys.
    fn step(
        self,
        plan: &mut PlanBuilder,
        label: &str,
        key: &KernelKey,
        y: Option<&Tensor>,
        grid: Grid,
        products: u64,
    ) -> Result<()> {
        let AttentionBackward { shape, bounds, qkv, dy, log_sums, means, dqkv } = self;
        let params = shape.params(label, qkv, dy);
        assert!(
            dqkv.cols == qkv.cols && y.is_none_or(|y| y.cols == dy.cols),
            "{label}: gradients have the shapes of what they belong to"
        );
        let mut buffers = vec![("bounds", bounds), ("qkv", &qkv.buffer)];
        buffers.extend(y.map(|y| ("y", &y.buffer)));
        buffers.extend([("dy", &dy.buffer), ("log_sums", log_sums), ("means", means), ("dqkv", &dqkv.buffer)]);
        plan.step(label, key, params, &buffers, grid, dqkv)?;
        plan.cost(shape.cost(products));
        Ok(())
    }
}
