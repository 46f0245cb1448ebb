//! y = x with some numbers dropped, chosen anew by every seed; its own backward pass.

use super::Gradient;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { DropoutParams { vectors: u32, stride: u32, salt: u32, most: u32, scale: f32, adds: u32, } }

/// x [T, N], seed [1] (u32) -> y [T, N]. `salt` tells the places in a model apart; probability is below 1.
#[allow(clippy::too_many_arguments)]
pub fn dropout(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    probability: f32,
    seed: &wgpu::Buffer,
    salt: u32,
    y: &Tensor,
    to: Gradient,
) -> Result<()> {
    assert!(x.cols == y.cols && (0.0..1.0).contains(&probability), "{label}: {probability} of {} channels", x.cols);
    let params = DropoutParams {
        vectors: x.cols.div_ceil(4),
        stride: x.stride() / 4,
        salt,
        most: (probability as f64 * u32::MAX as f64) as u32,
        scale: 1.0 / (1.0 - probability),
        adds: (to == Gradient::Add) as u32,
    };
    let key = KernelKey::new(&[&["dropout.wgsl"]]);
    let buffers = [("seed", seed), ("x", &x.buffer), ("y", &y.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(params.vectors), y)?;
    plan.cost(Cost { token_bytes: x.cols as u64 * 4, token_flops: x.cols as u64 * 8, ..Cost::default() });
    Ok(())
}
