//! The gradient of the norms of query and key heads, in place.

use super::attention_backward::Heads;
use super::reduce;
use super::rope_kv::HeadNorms;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    HeadsNormBackwardParams {
        heads: u32,
        kv_heads: u32,
        head_size: u32,
        stride: u32,
        inverse_stride: u32,
        normed: u32,
    }
}

/// qkv [T, H + KV + KV, D] as the projection left it, inverses [T, H + KV] of [`super::rope::rope`]. dqkv, of qkv's shape,
/// is the gradient of the normed heads and becomes that of qkv.
pub fn heads_norm_backward(
    plan: &mut PlanBuilder,
    label: &str,
    shape: Heads,
    qkv: &Tensor,
    inverses: &Tensor,
    norms: HeadNorms,
    dqkv: &Tensor,
) -> Result<()> {
    let Heads { heads, kv_heads, head_size } = shape;
    assert!(
        qkv.cols == (heads + 2 * kv_heads) * head_size && dqkv.cols == qkv.cols && inverses.cols == heads + kv_heads,
        "{label}: qkv has {} channels and dqkv {}, for {heads} + 2 x {kv_heads} heads of {head_size}",
        qkv.cols,
        dqkv.cols
    );
    let params = HeadsNormBackwardParams {
        heads,
        kv_heads,
        head_size,
        stride: qkv.stride(),
        inverse_stride: inverses.stride(),
        normed: norms.bits(),
    };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "heads_norm_backward.wgsl"]]);
    let [q_gain, k_gain] = norms.gains(&qkv.buffer);
    let buffers = [
        ("qkv", &qkv.buffer),
        ("inverses", &inverses.buffer),
        ("q_gain", q_gain),
        ("k_gain", k_gain),
        ("dqkv", &dqkv.buffer),
    ];
    plan.step(label, &key, params, &buffers, Grid::tiles(heads + kv_heads, 1), dqkv)?;
    plan.cost(Cost { token_bytes: qkv.cols as u64 * 8, token_flops: qkv.cols as u64 * 8, ..Cost::default() });
    Ok(())
}
