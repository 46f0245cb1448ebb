//! Between the projections and attention: QK norm, rotary position embedding, keys and values into the cache.

use super::KvFormat;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernel::{KernelKey, params};
use crate::model::{Pairing, Rope};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;
use crate::weight::Vector;

params! {
    RopeKvParams {
        heads: u32,
        kv_heads: u32,
        context: u32,
        vectors: u32,
        qkv_stride: u32,
        q_stride: u32,
        pairs: u32,
        halves: u32,
        normed: u32,
        eps: f32,
    }
}

/// The angles of every position: (cos, sin) times the magnitude, [context, pairs]. Computed in f64, since f32 loses
/// the angle itself at high positions.
pub struct Angles {
    pub buffer: wgpu::Buffer,
    pub pairs: u32,
    pub pairing: Pairing,
}

impl Angles {
    pub fn upload(gpu: &Gpu, rope: &Rope, context: u32) -> Result<Angles> {
        let pairs = rope.inv_freq.len();
        let buffer = gpu.buffer("rope angles", context as u64 * pairs as u64 * 8)?;
        let turn = |position: u32, frequency: f32| {
            let (sin, cos) = (position as f64 * frequency as f64).sin_cos();
            [(cos * rope.magnitude as f64) as f32, (sin * rope.magnitude as f64) as f32]
        };
        let turn = &turn;
        let positions = if gpu.is_outline() { 0 } else { context };
        let rows: Vec<[f32; 2]> =
            (0..positions).flat_map(|position| rope.inv_freq.iter().map(move |&f| turn(position, f))).collect();
        gpu.upload(&buffer, [bytemuck::cast_slice(&rows)])?;
        Ok(Angles { buffer, pairs: pairs as u32, pairing: rope.pairing })
    }
}

/// The keys and values of one block, [KV, context, D] each: what one head reads lies together, so that processors fetch it
/// ahead.
pub struct KvCache {
    pub k: wgpu::Buffer,
    pub v: wgpu::Buffer,
    pub format: KvFormat,
    pub context: u32,
}

/// The gains of the query and key heads' norms, [D] each, and the norm's epsilon.
#[derive(Clone, Copy)]
pub struct HeadNorms<'a> {
    pub q: Option<&'a Vector>,
    pub k: Option<&'a Vector>,
    pub eps: f32,
}

impl<'a> HeadNorms<'a> {
    /// Which there are, as shaders take it: 1 queries', 2 keys'.
    pub(super) fn bits(self) -> u32 {
        self.q.is_some() as u32 | (self.k.is_some() as u32) << 1
    }

    /// The gains' buffers; any other in place of those that are not.
    pub(super) fn gains(self, other: &'a wgpu::Buffer) -> [&'a wgpu::Buffer; 2] {
        [self.q, self.k].map(|gain| gain.map_or(other, |gain| &gain.buffer))
    }
}

/// qkv [T, H + KV + KV, D] -> q [T, H, D]; keys and values into the cache, from the frame's position on.
#[allow(clippy::too_many_arguments)] // an op takes what it takes
pub fn rope_kv(
    plan: &mut PlanBuilder,
    label: &str,
    qkv: &Tensor,
    angles: &Angles,
    norms: HeadNorms,
    kv_heads: u32,
    q: &Tensor,
    cache: &KvCache,
) -> Result<()> {
    let head_size = (qkv.cols - q.cols) / (2 * kv_heads);
    let heads = q.cols / head_size;
    assert!(
        head_size.is_multiple_of(4) && qkv.cols == (heads + 2 * kv_heads) * head_size && q.cols == heads * head_size,
        "{label}: qkv is whole heads of a multiple of 4 channels"
    );
    let vectors = head_size / 4;
    let params = RopeKvParams {
        heads,
        kv_heads,
        context: cache.context,
        vectors,
        qkv_stride: qkv.stride(),
        q_stride: q.stride() / 4,
        pairs: angles.pairs,
        halves: (angles.pairing == Pairing::Halves) as u32,
        normed: norms.bits(),
        eps: norms.eps,
    };
    let key = KernelKey::new(&[&["frame.wgsl"], cache.format.writing(), &["rope/turned.wgsl", "rope_kv.wgsl"]]);
    let [q_gain, k_gain] = norms.gains(&angles.buffer);
    let buffers = [
        ("qkv", &qkv.buffer),
        ("angles", &angles.buffer),
        ("q_gain", q_gain),
        ("k_gain", k_gain),
        ("q", &q.buffer),
        ("k_cache", &cache.k),
        ("v_cache", &cache.v),
    ];
    plan.step(label, &key, params, &buffers, Grid::lanes((heads + 2 * kv_heads) * vectors), q)?;
    plan.cost(Cost { token_bytes: qkv.cols as u64 * 4, token_flops: qkv.cols as u64 * 3, ..Cost::default() });
    Ok(())
}
