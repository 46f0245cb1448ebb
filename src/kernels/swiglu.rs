//! y = silu(gate) * up, where gate and up are wanted for themselves or come from matrices of different formats; else
//! [`super::linear`] does it at once.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { SwigluParams { cols: u32, x_stride: u32, y_stride: u32, step: u32, up: u32, } }

/// How the rows of a fused gate and up lie, and with them their results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lie {
    /// All gates, then all ups: [2, F].
    Stacked,
    /// In turns: [F, 2].
    Alternating,
}

impl Lie {
    /// (from one gate to the next, from a gate to its up) where there are F of each.
    pub fn steps(self, f: u32) -> (u32, u32) {
        match self {
            Lie::Stacked => (1, f),
            Lie::Alternating => (2, 1),
        }
    }
}

/// gate_up [T, 2F] -> y [T, F].
pub fn swiglu(plan: &mut PlanBuilder, label: &str, gate_up: &Tensor, lie: Lie, y: &Tensor) -> Result<()> {
    assert!(gate_up.cols == 2 * y.cols, "{label}: swiglu takes a gate and an up for each result");
    let (step, up) = lie.steps(y.cols);
    let params = SwigluParams { cols: y.cols, x_stride: gate_up.stride(), y_stride: y.stride(), step, up };
    let key = KernelKey::new(&[&["silu.wgsl", "swiglu.wgsl"]]);
    let buffers = [("gate_up", &gate_up.buffer), ("y", &y.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(y.cols), y)?;
    plan.cost(Cost { token_bytes: gate_up.cols as u64 * 4, token_flops: y.cols as u64 * 6, ..Cost::default() });
    Ok(())
}
