//! Dot products of bytes without memory: the device's own ceiling for decoding with activations in bytes.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { DotBytesParams { rounds: u32, } }

/// Multiply-adds that one lane does in one round.
pub const PER_ROUND: u32 = 32;

/// y [lanes] takes the sums, so that no compiler drops the work.
pub fn dot_bytes(plan: &mut PlanBuilder, label: &str, rounds: u32, y: &Tensor) -> Result<()> {
    let key = KernelKey::new(&[&["dot_bytes.wgsl"]]);
    plan.step(label, &key, DotBytesParams { rounds }, &[("y", &y.buffer)], Grid::lanes(y.cols), y)
}
