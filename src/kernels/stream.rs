//! Reads a buffer once: the device's own ceiling for whatever is bound by reading weights.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { StreamParams { per_lane: u32, step: u32, start: u32, } }

/// Reads `vectors` vec4 (a multiple of 4 * lanes) of `x` into y [lanes]; each lane a run of its own, or side by side.
pub fn stream(plan: &mut PlanBuilder, label: &str, x: &wgpu::Buffer, vectors: u32, runs: bool, y: &Tensor) -> Result<()> {
    let lanes = y.cols;
    let per_lane = vectors / lanes;
    let params = if runs {
        StreamParams { per_lane, step: 1, start: per_lane }
    } else {
        StreamParams { per_lane, step: lanes, start: 1 }
    };
    plan.step(label, &KernelKey::new(&[&["stream.wgsl"]]), params, &[("x", x), ("y", &y.buffer)], Grid::lanes(lanes), y)
}
