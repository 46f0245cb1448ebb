//! The gradients of y = x / sqrt(mean(x^2) + eps) * gain: [`rms_norm_backward`] by x, [`rms_norm_dgain`] by the gain.

use super::Gradient;
use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;
use crate::weight::Vector;

params! {
    RmsNormBackwardParams {
        cols: u32,
        vectors: u32,
        stride: u32,
        inverse_stride: u32,
        adds: u32,
        eps: f32,
    }
}

params! {
    RmsNormDgainParams {
        cols: u32,
        rows_per_token: u32,
        row_stride: u32,
        stride: u32,
        inverse_stride: u32,
        adds: u32,
        first: u32,
        inverse_first: u32,
    }
}

/// x, dy [T, rows, cols], gain [cols] -> dx of the same shape, and what the rows were multiplied with: inverses [T, rows].
/// A token's row is one vector, or one a head (QK norm); their number follows from the gain's length.
#[allow(clippy::too_many_arguments)]
pub fn rms_norm_backward(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    gain: &Vector,
    eps: f32,
    dy: &Tensor,
    dx: &Tensor,
    to: Gradient,
    inverses: &Tensor,
) -> Result<()> {
    let rows = x.cols / gain.len;
    assert!(
        dy.cols == x.cols && dx.cols == x.cols && inverses.cols == rows && x.cols == rows * gain.len,
        "{label}: x, dy and dx hold the same rows of the gain {}, inverses one number for each",
        gain.name
    );
    assert!(rows == 1 || gain.len.is_multiple_of(4), "{label}: rows inside a token begin at whole vectors");
    let params = RmsNormBackwardParams {
        cols: gain.len,
        vectors: gain.len.div_ceil(4),
        stride: x.stride() / 4,
        inverse_stride: inverses.stride(),
        adds: (to == Gradient::Add) as u32,
        eps,
    };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "rms_norm_backward.wgsl"]]);
    let buffers = [
        ("x", &x.buffer),
        ("gain", &gain.buffer),
        ("dy", &dy.buffer),
        ("dx", &dx.buffer),
        ("inverses", &inverses.buffer),
    ];
    plan.step(label, &key, params, &buffers, Grid::tiles(rows, 1), dx)?;
    plan.cost(Cost { token_bytes: x.cols as u64 * 8, token_flops: x.cols as u64 * 10, ..Cost::default() });
    Ok(())
}

/// x, dy [T, rows, cols], inverses [T, rows] of [`rms_norm_backward`] -> dgain [1, cols].
pub fn rms_norm_dgain(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    dy: &Tensor,
    inverses: &Tensor,
    dgain: &Tensor,
    to: Gradient,
) -> Result<()> {
    let rows = inverses.cols;
    assert!(x.cols == rows * dgain.cols, "{label}: x and dy hold the same rows of {} channels", dgain.cols);
    heads_dgain(plan, label, x, dy, inverses, (0, rows), dgain, to)
}

/// [`rms_norm_dgain`] of some heads alone, (first, how many): x, dy [T, heads, cols], inverses [T, heads] -> dgain [1, cols].
#[allow(clippy::too_many_arguments)]
pub fn heads_dgain(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    dy: &Tensor,
    inverses: &Tensor,
    (first, rows): (u32, u32),
    dgain: &Tensor,
    to: Gradient,
) -> Result<()> {
    assert!(
        dy.cols == x.cols && x.cols >= (first + rows) * dgain.cols && inverses.cols >= first + rows,
        "{label}: {rows} heads of {} channels from {first} on, of {} and {} channels",
        dgain.cols,
        x.cols,
        dy.cols
    );
    let params = RmsNormDgainParams {
        cols: dgain.cols,
        rows_per_token: rows,
        row_stride: dgain.cols,
        stride: x.stride(),
        inverse_stride: inverses.stride(),
        adds: (to == Gradient::Add) as u32,
        first: first * dgain.cols,
        inverse_first: first,
    };
    let key = KernelKey::new(&[&["frame.wgsl", "rms_norm_dgain.wgsl"]]);
    let buffers = [("x", &x.buffer), ("dy", &dy.buffer), ("inverses", &inverses.buffer), ("dgain", &dgain.buffer)];
    plan.step(label, &key, params, &buffers, Grid::once(dgain.cols.div_ceil(64)), dgain)?;
    let read = (rows * dgain.cols) as u64;
    plan.cost(Cost { token_bytes: read * 8, token_flops: read * 3, ..Cost::default() });
    Ok(())
}
