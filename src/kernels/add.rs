//! y += x, in place: the residual connection.

use super::plain;
use crate::error::Result;
use crate::kernel::params;
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { AddParams { vectors: u32, stride: u32, } }

/// x [T, C], y [T, C].
pub fn add(plan: &mut PlanBuilder, label: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    assert_eq!(x.cols, y.cols, "{label}: add takes equal rows");
    let vectors = y.stride() / 4;
    let params = AddParams { vectors, stride: vectors };
    plan.step(label, &plain("add.wgsl"), params, &[("x", &x.buffer), ("y", &y.buffer)], Grid::lanes(vectors), y)
}
