//! f32 activations to bytes.

use super::attention::Splits;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::{Element, Tensor};

params! { QuantizeParams { blocks: u32, x_stride: u32, y_stride: u32, } }
params! {
    QuantizeJoinedParams {
        blocks: u32,
        x_stride: u32,
        y_stride: u32,
        heads: u32,
        vectors: u32,
        split: u32,
        splits: u32,
    }
}

/// x [T, K] (f32) -> y [T, K] (two bytes each, with a scale for every block of 32).
pub fn quantize(plan: &mut PlanBuilder, label: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    assert!(x.cols == y.cols && y.element == Element::Bytes, "{label}: quantize makes bytes of equal rows");
    let blocks = x.cols.div_ceil(32);
    let params = QuantizeParams { blocks, x_stride: x.stride() / 4, y_stride: y.stride() };
    let key = KernelKey::new(&[&["bytes.wgsl", "source/plain.wgsl", "quantize.wgsl"]]);
    plan.step(label, &key, params, &[("x", &x.buffer), ("y", &y.buffer)], Grid::lanes(blocks), y)?;
    plan.cost(Cost { token_bytes: x.cols as u64 * 4, ..Cost::default() });
    Ok(())
}

/// What attention left in x [T, H, D] and `splits`, joined, -> y [T, H * D] (bytes).
pub fn quantize_joined(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    head_size: u32,
    splits: &Splits,
    y: &Tensor,
) -> Result<()> {
    assert!(x.cols == y.cols && y.element == Element::Bytes, "{label}: quantize makes bytes of equal rows");
    let blocks = x.cols.div_ceil(32);
    let params = QuantizeJoinedParams {
        blocks,
        x_stride: x.stride() / 4,
        y_stride: y.stride(),
        heads: x.cols / head_size,
        vectors: head_size / 4,
        split: splits.keys,
        splits: splits.most,
    };
    let files = ["frame.wgsl", "bytes.wgsl", "source/joined.wgsl", "attend/joined.wgsl", "quantize.wgsl"];
    let buffers = [("x", &x.buffer), ("parts", &splits.parts), ("y", &y.buffer)];
    plan.step(label, &KernelKey::new(&[&files]), params, &buffers, Grid::lanes(blocks), y)?;
    plan.cost(Cost { token_bytes: x.cols as u64 * 4, ..Cost::default() });
    Ok(())
}
