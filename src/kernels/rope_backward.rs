//! The gradient of rotary position embedding: the same angles, turned back.

use super::rope_kv::Angles;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::model::Pairing;
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    RopeBackwardParams {
        heads: u32,
        head_size: u32,
        stride: u32,
        pairs: u32,
        halves: u32,
    }
}

/// Turns the first `heads` heads of dqkv [T, H + KV + KV, D] back in place: those of queries and keys. positions [T] (u32)
/// are below the angles' context.
pub fn rope_backward(
    plan: &mut PlanBuilder,
    label: &str,
    angles: &Angles,
    positions: &wgpu::Buffer,
    heads: u32,
    head_size: u32,
    dqkv: &Tensor,
) -> Result<()> {
    assert!(
        heads * head_size <= dqkv.cols && 2 * angles.pairs <= head_size,
        "{label}: {heads} heads of {head_size} among {} channels, {} pairs are turned",
        dqkv.cols,
        angles.pairs
    );
    let halves = (angles.pairing == Pairing::Halves) as u32;
    let params = RopeBackwardParams { heads, head_size, stride: dqkv.stride(), pairs: angles.pairs, halves };
    let key = KernelKey::new(&[&["rope_backward.wgsl"]]);
    let buffers = [("angles", &angles.buffer), ("positions", positions), ("dqkv", &dqkv.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(heads * angles.pairs), dqkv)?;
    let turned = (heads * angles.pairs) as u64;
    plan.cost(Cost { token_bytes: turned * 8, token_flops: turned * 6, ..Cost::default() });
    Ok(())
}
