//! y[t] += bias, in place.

use super::plain;
use crate::error::Result;
use crate::kernel::params;
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;
use crate::weight::Vector;

params! { AddBiasParams { vectors: u32, y_stride: u32, } }

/// bias [N], y [T, N].
pub fn add_bias(plan: &mut PlanBuilder, label: &str, bias: &Vector, y: &Tensor) -> Result<()> {
    assert_eq!(bias.len, y.cols, "{label}: the bias {} has another length than the rows", bias.name);
    let vectors = y.stride() / 4;
    let params = AddBiasParams { vectors, y_stride: vectors };
    plan.step(label, &plain("add_bias.wgsl"), params, &[("bias", &bias.buffer), ("y", &y.buffer)], Grid::lanes(vectors), y)
}
