//! RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain.

use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;
use crate::weight::Vector;

params! {
    RmsNormParams {
        cols: u32,
        vectors: u32,
        rows_per_token: u32,
        x_stride: u32,
        y_stride: u32,
        last_only: u32,
        eps: f32,
    }
}

/// Which tokens of a pass a step works on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    All,
    /// Only the last token, whose result becomes row 0.
    Last,
}

/// x [T, rows, cols], gain [cols] -> y of the same shape. A token's row is one vector, or one a head (QK norm);
/// their number follows from the gain's length.
pub fn rms_norm(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    gain: &Vector,
    eps: f32,
    rows: Rows,
    y: &Tensor,
) -> Result<()> {
    let rows_per_token = x.cols / gain.len;
    assert!(
        x.cols == y.cols && x.cols == rows_per_token * gain.len,
        "{label}: rows are no multiple of the gain {}",
        gain.name
    );
    assert!(rows_per_token == 1 || gain.len.is_multiple_of(4), "{label}: rows inside a token begin at whole vectors");
    let params = RmsNormParams {
        cols: gain.len,
        vectors: gain.len.div_ceil(4),
        rows_per_token,
        x_stride: x.stride() / 4,
        y_stride: y.stride() / 4,
        last_only: (rows == Rows::Last) as u32,
        eps,
    };
    let grid = if rows == Rows::All { Grid::tiles(rows_per_token, 1) } else { Grid::once(rows_per_token) };
    let key = KernelKey::new(&[&["frame.wgsl", reduce(&plan.gpu), "rms_norm.wgsl"]]);
    plan.step(label, &key, params, &[("x", &x.buffer), ("gain", &gain.buffer), ("y", &y.buffer)], grid, y)?;
    let (bytes, single) = (x.cols as u64 * 4, rows == Rows::Last);
    plan.cost(Cost { token_bytes: bytes, token_flops: bytes, single, ..Cost::default() });
    Ok(())
}
