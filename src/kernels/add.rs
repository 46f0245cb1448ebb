//! y = x + branch, where the branch is wanted for itself; else [`super::linear`] adds it on the way.

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { AddParams { vectors: u32, } }

/// x [T, C], branch [T, C] -> y [T, C], which is neither of them.
pub fn add(plan: &mut PlanBuilder, label: &str, x: &Tensor, branch: &Tensor, y: &Tensor) -> Result<()> {
    assert!(x.cols == y.cols && branch.cols == y.cols, "{label}: {} + {} of {}", x.cols, branch.cols, y.cols);
    let vectors = y.stride() / 4;
    let key = KernelKey::new(&[&["add.wgsl"]]);
    let buffers = [("x", &x.buffer), ("branch", &branch.buffer), ("y", &y.buffer)];
    plan.step(label, &key, AddParams { vectors }, &buffers, Grid::lanes(vectors), y)?;
    plan.cost(Cost { token_bytes: y.cols as u64 * 8, token_flops: y.cols as u64, ..Cost::default() });
    Ok(())
}
