//! The optimizers' steps, and the sums of squares that the gradients' norm is made of.

use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { OptimizerParams { rows: u32, vectors: u32, first: u32, stride: u32, decays: u32, } }
params! {
    SumOfSquaresParams {
        rows: u32,
        vectors: u32,
        first: u32,
        stride: u32,
        groups: u32,
        slot: u32,
    }
}

params! {
    /// The numbers of one step, for all parameters.
    Rates {
        rate: f32,
        clip: f32,
        decay: f32,
        beta1: f32,
        beta2: f32,
        eps: f32,
        lacks1: f32,
        lacks2: f32,
    }
}

/// Workgroups that sum one parameter's squares at most.
const MOST_GROUPS: u32 = 64;

/// Some rows of a tensor, or some columns of its one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// Where it begins, in vec4.
    pub first: u32,
    pub rows: u32,
    /// vec4 of a row that count.
    pub vectors: u32,
}

impl Region {
    /// Rows `first` and on of a tensor [.., cols].
    pub fn rows(tensor: &Tensor, first: u32, rows: u32) -> Region {
        Region { first: first * (tensor.stride() / 4), rows, vectors: tensor.cols.div_ceil(4) }
    }

    fn lanes(self) -> u32 {
        self.rows * self.vectors
    }
}

/// A region of w and of its gradient and moments, all of one shape [rows, cols]; rates holds one [`Rates`].
#[allow(clippy::too_many_arguments)]
pub fn adamw(
    plan: &mut PlanBuilder,
    label: &str,
    rates: &wgpu::Buffer,
    region: Region,
    decays: bool,
    gradient: &Tensor,
    w: &Tensor,
    means: &Tensor,
    squares: &Tensor,
) -> Result<()> {
    let moments = [("means", &means.buffer), ("squares", &squares.buffer)];
    update(plan, label, "adamw.wgsl", rates, region, decays, gradient, w, &moments)
}

/// As [`adamw`], with one moment.
#[allow(clippy::too_many_arguments)]
pub fn sgd(
    plan: &mut PlanBuilder,
    label: &str,
    rates: &wgpu::Buffer,
    region: Region,
    decays: bool,
    gradient: &Tensor,
    w: &Tensor,
    momenta: &Tensor,
) -> Result<()> {
    update(plan, label, "sgd.wgsl", rates, region, decays, gradient, w, &[("momenta", &momenta.buffer)])
}

#[allow(clippy::too_many_arguments)]
fn update(
    plan: &mut PlanBuilder,
    label: &str,
    kernel: &'static str,
    rates: &wgpu::Buffer,
    region: Region,
    decays: bool,
    gradient: &Tensor,
    w: &Tensor,
    moments: &[(&str, &wgpu::Buffer)],
) -> Result<()> {
    let Region { first, rows, vectors } = region;
    let params = OptimizerParams { rows, vectors, first, stride: w.stride() / 4, decays: decays as u32 };
    let key = KernelKey::new(&[&["frame.wgsl", "optimizer.wgsl", kernel]]);
    let mut buffers = vec![("rates", rates), ("gradient", &gradient.buffer), ("w", &w.buffer)];
    buffers.extend(moments);
    plan.step(label, &key, params, &buffers, Grid::once(region.lanes().div_ceil(64)), w)?;
    // the gradient is read, the weights and moments are read and written
    let passes = 3 + 2 * moments.len() as u64;
    plan.cost(Cost { weight_bytes: region.lanes() as u64 * 16 * passes, ..Cost::default() });
    Ok(())
}

/// How many sums [`sum_of_squares`] gives for a region.
pub fn sums_of(region: Region) -> u32 {
    region.lanes().div_ceil(64 * 16).clamp(1, MOST_GROUPS)
}

/// A region of x [rows, cols] -> [`sums_of`] sums (f32) from `slot` on.
pub fn sum_of_squares(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    region: Region,
    sums: &wgpu::Buffer,
    slot: u32,
) -> Result<()> {
    let (Region { first, rows, vectors }, groups) = (region, sums_of(region));
    let params = SumOfSquaresParams { rows, vectors, first, stride: x.stride() / 4, groups, slot };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "sum_of_squares.wgsl"]]);
    plan.step(label, &key, params, &[("x", &x.buffer), ("sums", sums)], Grid::once(groups), x)?;
    plan.cost(Cost { weight_bytes: region.lanes() as u64 * 16, ..Cost::default() });
    Ok(())
}
