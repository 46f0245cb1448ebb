//! The gradient of a table whose rows were gathered by token ids.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! {
    EmbedBackwardParams {
        vectors: u32,
        dy_stride: u32,
        dtable_stride: u32,
        first_row: u32,
        rows: u32,
    }
}

/// ids [T] (u32), dy [T, C]: adds to dtable, which holds the rows of a table [V, C] from `first_row` on. Rows that no token
/// gathered stay as they are, so dtable is cleared before the first pass.
pub fn embed_backward(
    plan: &mut PlanBuilder,
    label: &str,
    ids: &wgpu::Buffer,
    dy: &Tensor,
    dtable: &Tensor,
    (first_row, rows): (u32, u32),
) -> Result<()> {
    assert!(
        dy.cols == dtable.cols && rows <= dtable.rows,
        "{label}: {rows} rows of {} channels, dtable is [{}, {}]",
        dy.cols,
        dtable.rows,
        dtable.cols
    );
    let vectors = dy.cols.div_ceil(4);
    let (dy_stride, dtable_stride) = (dy.stride() / 4, dtable.stride() / 4);
    let params = EmbedBackwardParams { vectors, dy_stride, dtable_stride, first_row, rows };
    let key = KernelKey::new(&[&["frame.wgsl", "embed_backward.wgsl"]]);
    let buffers = [("ids", ids), ("dy", &dy.buffer), ("dtable", &dtable.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(vectors), dtable)?;
    plan.cost(Cost { token_bytes: dy.cols as u64 * 8, token_flops: dy.cols as u64, ..Cost::default() });
    Ok(())
}
