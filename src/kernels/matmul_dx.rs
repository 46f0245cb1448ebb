//! dx = dy W: the backward pass of y = W x to x. W may be of any format: it is read, not changed.

use super::linear::{matrix_files, matrix_tile};
use super::row_scale::scales_of;
use super::{Dy, Gradient};
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::shaders::format_files;
use crate::tensor::Tensor;
use crate::weight::Weight;

params! {
    MatmulDxParams {
        rows: u32,
        blocks: u32,
        first_row: u32,
        dy_stride: u32,
        dx_stride: u32,
        adds: u32,
        skip: u32,
        dy_first: u32,
        dy_step: u32,
        scale: f32,
    }
}

/// dy [T, N], w [N, K] -> dx [T, K]. One step a part of W.
pub fn matmul_dx<'a>(
    plan: &mut PlanBuilder,
    label: &str,
    dy: impl Into<Dy<'a>>,
    w: &Weight,
    dx: &Tensor,
    to: Gradient,
) -> Result<()> {
    let of = dy.into();
    let Dy { tensor: dy, columns, scale } = of;
    assert!(
        columns.count == w.rows && dx.cols == w.cols,
        "{label}: {} is [{}, {}], dy has {}, dx has {}",
        w.name,
        w.rows,
        w.cols,
        columns.count,
        dx.cols
    );
    let matrix = plan.gpu.profile().matrix.filter(|_| !plan.exact);
    let scales = matrix.map(|_| scales_of(plan, label, of)).transpose()?;
    // lanes of eight hand round what all of them want
    let (hardware, kernel, grid): (&[&str], &[&str], Grid) = match (matrix, plan.gpu.profile().eights) {
        (Some(matrix), _) => {
            let tile = matrix_tile(matrix);
            let grid = Grid::tiles((w.blocks() * 32).div_ceil(tile), tile);
            (matrix_files(matrix), &["product/dx.wgsl", "matmul_matrix.wgsl"], grid)
        }
        (None, true) => (&[], &["matmul_dx_lane.wgsl"], Grid::tiles(w.blocks().div_ceil(4), 16)),
        (None, false) => (&[], &["matmul_dx.wgsl"], Grid::tiles(w.blocks().div_ceil(2), 32)),
    };
    for (i, part) in w.parts.iter().enumerate() {
        let params = MatmulDxParams {
            rows: part.rows,
            blocks: w.blocks(),
            first_row: part.first_row,
            dy_stride: dy.stride(),
            dx_stride: dx.stride() / 4,
            adds: (i > 0 || to == Gradient::Add) as u32,
            skip: part.skip,
            dy_first: columns.first,
            dy_step: columns.step,
            scale,
        };
        let shared = ["frame.wgsl", part.order.file(), "backward/dx.wgsl"];
        let key = KernelKey::new(&[hardware, format_files(part.format), &shared, kernel]); // `enable` comes first
        let mut buffers = part.buffers();
        buffers.push(("dy", &dy.buffer));
        buffers.extend(scales.as_ref().map(|scales| ("row_scales", scales)));
        buffers.push(("dx", &dx.buffer));
        plan.step(label, &key, params, &buffers, grid, dx)?;
        plan.note(format!("[{}, {}] {}", part.rows, w.cols, part.format.name()));
        plan.cost(Cost {
            weight_bytes: part.bytes(),
            token_bytes: part.rows as u64 * 4,
            token_flops: 2 * part.rows as u64 * w.cols as u64,
            ..Cost::default()
        });
    }
    Ok(())
}
