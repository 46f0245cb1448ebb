//! The gradients of gate and up, from that of y = silu(gate) * up.

use super::swiglu::Lie;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    SwigluBackwardParams {
        cols: u32,
        gate_up_stride: u32,
        dy_stride: u32,
        step: u32,
        up: u32,
    }
}

/// gate_up [T, 2F], dy [T, F] -> dgate_up [T, 2F].
pub fn swiglu_backward(
    plan: &mut PlanBuilder,
    label: &str,
    gate_up: &Tensor,
    lie: Lie,
    dy: &Tensor,
    dgate_up: &Tensor,
) -> Result<()> {
    assert!(
        gate_up.cols == 2 * dy.cols && dgate_up.cols == gate_up.cols,
        "{label}: swiglu_backward takes a gate and an up for each of dy"
    );
    let (step, up) = lie.steps(dy.cols);
    let params =
        SwigluBackwardParams { cols: dy.cols, gate_up_stride: gate_up.stride(), dy_stride: dy.stride(), step, up };
    let key = KernelKey::new(&[&["swiglu_backward.wgsl"]]);
    let buffers = [("gate_up", &gate_up.buffer), ("dy", &dy.buffer), ("dgate_up", &dgate_up.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(dy.cols), dgate_up)?;
    plan.cost(Cost { token_bytes: dy.cols as u64 * 12, token_flops: dy.cols as u64 * 12, ..Cost::default() });
    Ok(())
}
