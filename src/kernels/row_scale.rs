//! Powers of two that make gradients fit into halves, one for each token.

use super::{Dy, reduce};
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};

params! { RowScaleParams { count: u32, first: u32, step: u32, stride: u32, } }

/// dy [T, N] -> scales [T]: for each token the power of two (from 2^-100 to 2^100) that brings its largest gradient to 2^13 and more,
/// below 2^14; 0 where one is not finite.
pub fn row_scale(plan: &mut PlanBuilder, label: &str, dy: Dy, scales: &wgpu::Buffer) -> Result<()> {
    let Dy { tensor, columns, .. } = dy;
    let params =
        RowScaleParams { count: columns.count, first: columns.first, step: columns.step, stride: tensor.stride() };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "row_scale.wgsl"]]);
    plan.step(label, &key, params, &[("dy", &tensor.buffer), ("row_scales", scales)], Grid::tiles(1, 1), tensor)?;
    plan.cost(Cost { token_bytes: columns.count as u64 * 4, ..Cost::default() });
    Ok(())
}

/// The scales of dy, in a buffer of their own.
pub(super) fn scales_of(plan: &mut PlanBuilder, label: &str, dy: Dy) -> Result<wgpu::Buffer> {
    let scales = plan.gpu.buffer("scales", plan.max_tokens as u64 * 4)?;
    row_scale(plan, &format!("{label}.scales"), dy, &scales)?;
    Ok(scales)
}
