//! f32 activations to bytes.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::{Element, Tensor};

params! { QuantizeParams { blocks: u32, x_stride: u32, y_stride: u32, } }

/// x [T, K] (f32) -> y [T, K] (two bytes each, with a scale for every block of 32).
pub fn quantize(plan: &mut PlanBuilder, label: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    assert!(x.cols == y.cols && y.element == Element::Bytes, "{label}: quantize makes bytes of equal rows");
    let blocks = x.cols.div_ceil(32);
    let params = QuantizeParams { blocks, x_stride: x.stride() / 4, y_stride: y.stride() };
    let key = KernelKey::new(&[&["bytes.wgsl", "quantize.wgsl"]]);
    plan.step(label, &key, params, &[("x", &x.buffer), ("y", &y.buffer)], Grid::lanes(blocks), y)?;
    plan.cost(Cost { token_bytes: x.cols as u64 * 4, ..Cost::default() });
    Ok(())
}
