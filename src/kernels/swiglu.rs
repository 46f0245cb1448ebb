//! y = silu(gate) * up.

use super::plain;
use crate::error::Result;
use crate::kernel::params;
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { SwigluParams { vectors: u32, stride: u32, } }

/// gate [T, F], up [T, F] -> y [T, F].
pub fn swiglu(plan: &mut PlanBuilder, label: &str, gate: &Tensor, up: &Tensor, y: &Tensor) -> Result<()> {
    assert!(gate.cols == y.cols && up.cols == y.cols, "{label}: swiglu takes equal rows");
    let vectors = y.stride() / 4;
    let params = SwigluParams { vectors, stride: vectors };
    let buffers = [("gate", &gate.buffer), ("up", &up.buffer), ("y", &y.buffer)];
    plan.step(label, &plain("swiglu.wgsl"), params, &buffers, Grid::lanes(vectors), y)
}
