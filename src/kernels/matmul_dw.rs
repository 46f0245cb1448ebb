//! dW = dyᵀ x: the backward pass of y = W x to W.

use super::linear::{matrix_files, matrix_tile};
use super::row_scale::scales_of;
use super::{Columns, Dy, Gradient};
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    MatmulDwParams {
        rows: u32,
        vectors: u32,
        columns: u32,
        dy_stride: u32,
        x_stride: u32,
        dw_stride: u32,
        adds: u32,
        dy_first: u32,
        dy_step: u32,
        scale: f32,
        first_row: u32,
    }
}

/// dy [T, N], x [T, K] -> dw [N, K], from its row `first_row` on.
pub fn matmul_dw<'a>(
    plan: &mut PlanBuilder,
    label: &str,
    dy: impl Into<Dy<'a>>,
    x: &Tensor,
    dw: &Tensor,
    first_row: u32,
    to: Gradient,
) -> Result<()> {
    let of = dy.into();
    let Dy { tensor: dy, columns: Columns { first: dy_first, step: dy_step, count: n }, scale } = of;
    let k = x.cols;
    assert!(
        dw.cols == k && dw.rows >= first_row + n,
        "{label}: dw is [{}, {}], dy has {n}, x has {k}",
        dw.rows,
        dw.cols
    );
    let matrix = plan.gpu.profile().matrix.filter(|_| !plan.exact);
    let scales = matrix.map(|_| scales_of(plan, label, of)).transpose()?;
    // lanes of eight hand round what all of them want
    let (hardware, kernel, (rows, width)): (&[&str], &[&str], _) = match (matrix, plan.gpu.profile().eights) {
        (Some(matrix), _) => {
            let tile = matrix_tile(matrix);
            (matrix_files(matrix), &["product/dw.wgsl", "matmul_matrix.wgsl"], (tile, tile))
        }
        (None, true) => (&[], &["matmul_dw_lane.wgsl"], (16, 64)),
        (None, false) => (&[], &["matmul_dw.wgsl"], (32, 64)),
    };
    let columns = k.div_ceil(width);
    let params = MatmulDwParams {
        rows: n,
        vectors: k.div_ceil(4),
        columns,
        dy_stride: dy.stride(),
        x_stride: x.stride() / 4,
        dw_stride: dw.stride() / 4,
        adds: (to == Gradient::Add) as u32,
        dy_first,
        dy_step,
        scale,
        first_row,
    };
    let key = KernelKey::new(&[hardware, &["frame.wgsl", "backward/dw.wgsl"], kernel]); // `enable` comes first
    let mut buffers = vec![("dy", &dy.buffer), ("x", &x.buffer)];
    buffers.extend(scales.as_ref().map(|scales| ("row_scales", scales)));
    buffers.push(("dw", &dw.buffer));
    plan.step(label, &key, params, &buffers, Grid::once(n.div_ceil(rows) * columns), dw)?;
    plan.note(format!("[{n}, {k}]"));
    plan.cost(Cost { token_bytes: (n + k) as u64 * 4, token_flops: 2 * n as u64 * k as u64, ..Cost::default() });
    Ok(())
}
