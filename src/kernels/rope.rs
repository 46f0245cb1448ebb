//! Whole sequences between the projections and attention: QK norm and rotary position embedding.

use super::attention_backward::Heads;
use super::rope_kv::{Angles, HeadNorms};
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::model::Pairing;
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    RopeParams {
        heads: u32,
        kv_heads: u32,
        vectors: u32,
        stride: u32,
        inverse_stride: u32,
        pairs: u32,
        halves: u32,
        normed: u32,
        eps: f32,
    }
}

/// qkv [T, H + KV + KV, D], positions [T] (u32, below the angles' context) -> turned of the same shape, and what the norms
/// multiplied with: inverses [T, H + KV].
#[allow(clippy::too_many_arguments)]
pub fn rope(
    plan: &mut PlanBuilder,
    label: &str,
    shape: Heads,
    qkv: &Tensor,
    angles: &Angles,
    norms: HeadNorms,
    positions: &wgpu::Buffer,
    turned: &Tensor,
    inverses: &Tensor,
) -> Result<()> {
    let Heads { heads, kv_heads, head_size } = shape;
    assert!(
        head_size.is_multiple_of(4) && qkv.cols == (heads + 2 * kv_heads) * head_size && turned.cols == qkv.cols,
        "{label}: qkv is whole heads of a multiple of 4 channels"
    );
    let params = RopeParams {
        heads,
        kv_heads,
        vectors: head_size / 4,
        stride: qkv.stride(),
        inverse_stride: inverses.stride(),
        pairs: angles.pairs,
        halves: (angles.pairing == Pairing::Halves) as u32,
        normed: norms.bits(),
        eps: norms.eps,
    };
    let key = KernelKey::new(&[&["rope/turned.wgsl", "rope.wgsl"]]);
    let [q_gain, k_gain] = norms.gains(&angles.buffer);
    let buffers = [
        ("qkv", &qkv.buffer),
        ("angles", &angles.buffer),
        ("q_gain", q_gain),
        ("k_gain", k_gain),
        ("positions", positions),
        ("turned_qkv", &turned.buffer),
        ("inverses", &inverses.buffer),
    ];
    plan.step(label, &key, params, &buffers, Grid::lanes(qkv.cols / 4), turned)?;
    plan.cost(Cost { token_bytes: qkv.cols as u64 * 4, token_flops: qkv.cols as u64 * 3, ..Cost::default() });
    Ok(())
}
