//! y = silu(gate) * up, where gate and up come from matrices of different formats; else [`super::linear`] does it at once.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { SwigluParams { cols: u32, x_stride: u32, y_stride: u32, } }

/// gate_up [T, 2, F] -> y [T, F].
pub fn swiglu(plan: &mut PlanBuilder, label: &str, gate_up: &Tensor, y: &Tensor) -> Result<()> {
    assert!(gate_up.cols == 2 * y.cols, "{label}: swiglu takes a gate and an up for each result");
    let params = SwigluParams { cols: y.cols, x_stride: gate_up.stride(), y_stride: y.stride() };
    let key = KernelKey::new(&[&["silu.wgsl", "swiglu.wgsl"]]);
    let buffers = [("gate_up", &gate_up.buffer), ("y", &y.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(y.cols), y)?;
    plan.cost(Cost { token_bytes: gate_up.cols as u64 * 4, token_flops: y.cols as u64 * 6, ..Cost::default() });
    Ok(())
}
