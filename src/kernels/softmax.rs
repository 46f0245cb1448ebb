//! y = exp(x - max) / sum, a row at a time.

use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { SoftmaxParams { cols: u32, stride: u32, } }

/// x [T, N] -> y [T, N].
pub fn softmax(plan: &mut PlanBuilder, label: &str, x: &Tensor, y: &Tensor) -> Result<()> {
    assert_eq!(x.cols, y.cols, "{label}: softmax takes equal rows");
    let params = SoftmaxParams { cols: x.cols, stride: x.stride() };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "softmax.wgsl"]]);
    plan.step(label, &key, params, &[("x", &x.buffer), ("y", &y.buffer)], Grid::tiles(1, 1), y)
}
