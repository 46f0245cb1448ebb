//! Multiply-adds without memory: the device's own ceiling for whatever is bound by arithmetic.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { MultiplyAddParams { rounds: u32, } }

/// Multiply-adds that one lane does in one round.
pub const PER_ROUND: u32 = 32;

/// y [lanes] takes the sums, so that no compiler drops the work.
pub fn multiply_add(plan: &mut PlanBuilder, label: &str, rounds: u32, y: &Tensor) -> Result<()> {
    let key = KernelKey::new(&[&["multiply_add.wgsl"]]);
    plan.step(label, &key, MultiplyAddParams { rounds }, &[("y", &y.buffer)], Grid::lanes(y.cols), y)
}
