//! The k largest of a row; k = 1 is argmax.

use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernel::{KernelKey, params};
use crate::kernels::rms_norm::Rows;
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { TopKParams { cols: u32, stride: u32, k: u32, best_stride: u32, } }

/// What the kernel found.
pub struct TopK {
    /// [T, k] pairs of u32: the id, and the bits of its value.
    pub best: Tensor,
    /// [T]: id + 1 of a value that is NaN or infinite, 0 if there is none.
    pub broken: wgpu::Buffer,
    pub k: u32,
}

impl TopK {
    pub fn new(gpu: &Gpu, rows: u32, k: u32) -> Result<TopK> {
        let best = Tensor::new(gpu, "top k", rows, 2 * k)?;
        Ok(TopK { best, broken: gpu.buffer("broken logits", rows as u64 * 4)?, k })
    }
}

/// x [T, N] -> (id, value) [T, k], largest first, the lower id first among equals. k must not exceed N.
pub fn top_k(plan: &mut PlanBuilder, label: &str, x: &Tensor, rows: Rows, found: &TopK) -> Result<()> {
    assert!(found.k <= x.cols, "{label}: the {} best of {}", found.k, x.cols);
    let params = TopKParams { cols: x.cols, stride: x.stride(), k: found.k, best_stride: found.best.stride() / 2 };
    let buffers = [("x", &x.buffer), ("best", &found.best.buffer), ("broken", &found.broken)];
    let grid = if rows == Rows::All { Grid::tiles(1, 1) } else { Grid::once(1) };
    plan.step(label, &KernelKey::new(&[&["top_k.wgsl"]]), params, &buffers, grid, &found.best)
}
