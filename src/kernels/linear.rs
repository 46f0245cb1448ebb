//! y[t] = W x[t]: matvec for one token, matmul for many, each in a version for real GPUs and one for processors
//! that emulate a GPU.

use super::{reduce, rms_norm::Rows};
use crate::error::Result;
use crate::formats::Format;
use crate::gpu::Gpu;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::shaders::format_files;
use crate::tensor::Tensor;
use crate::weight::Weight;

params! { LinearParams { rows: u32, blocks: u32, x_stride: u32, y_stride: u32, first_row: u32, } }

/// The four kernels that compute y = W x; they share params and bindings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Linear {
    Matvec,
    MatvecLane,
    Matmul,
    MatmulLane,
}

impl Linear {
    pub const ALL: [Linear; 4] = [Linear::Matvec, Linear::MatvecLane, Linear::Matmul, Linear::MatmulLane];

    /// The kernel for this device and so many tokens a pass.
    pub fn choose(gpu: &Gpu, tokens: u32) -> Linear {
        match (tokens == 1, gpu.profile().lanes) {
            (true, true) => Linear::MatvecLane,
            (true, false) => Linear::Matvec,
            (false, true) => Linear::MatmulLane,
            (false, false) => Linear::Matmul,
        }
    }

    pub fn key(self, gpu: &Gpu, format: Format) -> KernelKey {
        let files = format_files(format);
        match self {
            Linear::Matvec => KernelKey::new(&[files, &["frame.wgsl", "linear.wgsl", reduce(gpu), "matvec.wgsl"]]),
            Linear::MatvecLane => KernelKey::new(&[files, &["frame.wgsl", "linear.wgsl", "matvec_lane.wgsl"]]),
            Linear::Matmul => KernelKey::new(&[files, &["frame.wgsl", "linear.wgsl", "matmul.wgsl"]]),
            Linear::MatmulLane => KernelKey::new(&[files, &["frame.wgsl", "linear.wgsl", "matmul_lane.wgsl"]]),
        }
    }

    /// (rows of W, tokens) that a workgroup covers.
    fn tile(self) -> (u32, u32) {
        match self {
            Linear::Matvec => (4, 1),
            Linear::MatvecLane => (64, 1),
            Linear::Matmul => (32, 32),
            Linear::MatmulLane => (256, 8),
        }
    }
}

/// x [T, K], w [N, K] -> y [T, N]; with `Rows::Last`, row 0 of x -> row 0 of y.
pub fn linear(plan: &mut PlanBuilder, label: &str, x: &Tensor, w: &Weight, rows: Rows, y: &Tensor) -> Result<()> {
    let tokens = if rows == Rows::Last { 1 } else { plan.max_tokens };
    linear_with(plan, label, Linear::choose(&plan.gpu, tokens), x, w, rows, y)
}

/// [`linear`] by a kernel of the caller's choice.
pub fn linear_with(
    plan: &mut PlanBuilder,
    label: &str,
    kernel: Linear,
    x: &Tensor,
    w: &Weight,
    rows: Rows,
    y: &Tensor,
) -> Result<()> {
    assert!(
        x.cols == w.cols && y.cols == w.rows,
        "{label}: {} is [{}, {}], x has {}, y has {}",
        w.name,
        w.rows,
        w.cols,
        x.cols,
        y.cols
    );
    let key = kernel.key(&plan.gpu, w.format);
    let (tile_rows, tile_tokens) = kernel.tile();
    for shard in &w.shards {
        let params = LinearParams {
            rows: shard.rows,
            blocks: w.blocks(),
            x_stride: x.stride() / 4,
            y_stride: y.stride(),
            first_row: shard.first_row,
        };
        let grid =
            Grid { groups: shard.rows.div_ceil(tile_rows), tokens: if rows == Rows::All { tile_tokens } else { 0 } };
        plan.step(label, &key, params, &[("weights", &shard.buffer), ("x", &x.buffer), ("y", &y.buffer)], grid, y)?;
        plan.reads_weights(shard.buffer.size());
    }
    Ok(())
}
