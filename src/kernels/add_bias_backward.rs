//! The gradient of a bias: the sum of dy over the tokens.

use super::Gradient;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { AddBiasBackwardParams { cols: u32, stride: u32, adds: u32, } }

/// dy [T, N] -> dbias [1, N].
pub fn add_bias_backward(plan: &mut PlanBuilder, label: &str, dy: &Tensor, dbias: &Tensor, to: Gradient) -> Result<()> {
    assert!(dy.cols == dbias.cols, "{label}: dy has {} channels, the bias {}", dy.cols, dbias.cols);
    let params = AddBiasBackwardParams { cols: dy.cols, stride: dy.stride(), adds: (to == Gradient::Add) as u32 };
    let key = KernelKey::new(&[&["frame.wgsl", "add_bias_backward.wgsl"]]);
    let buffers = [("dy", &dy.buffer), ("dbias", &dbias.buffer)];
    plan.step(label, &key, params, &buffers, Grid::once(dy.cols.div_ceil(64)), dbias)?;
    plan.cost(Cost { token_bytes: dy.cols as u64 * 4, token_flops: dy.cols as u64, ..Cost::default() });
    Ok(())
}
