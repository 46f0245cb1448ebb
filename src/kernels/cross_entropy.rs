//! The loss of each token and its gradient, over logits that come in shards of the vocabulary: so the matrix of all logits
//! need never exist. [`cross_entropy`] goes over the shards once; then each shard's logits are made once more, and
//! [`cross_entropy_backward`] turns them into their gradient.

use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { CrossEntropyParams { cols: u32, first: u32, stride: u32, opens: u32, } }
params! { CrossEntropyBackwardParams { cols: u32, first: u32, stride: u32, } }

/// logits [T, shard] of the ids from `first` on, labels [T] (u32; u32::MAX is ignored) -> seen [T, 4]: the largest logit
/// so far, the sum of exp(logit - largest), the label's logit, the loss. The shard that begins at id 0 comes first.
pub fn cross_entropy(
    plan: &mut PlanBuilder,
    label: &str,
    logits: &Tensor,
    first: u32,
    labels: &wgpu::Buffer,
    seen: &wgpu::Buffer,
) -> Result<()> {
    let params = CrossEntropyParams { cols: logits.cols, first, stride: logits.stride(), opens: (first == 0) as u32 };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "cross_entropy.wgsl"]]);
    let buffers = [("logits", &logits.buffer), ("labels", labels), ("seen", seen)];
    plan.step(label, &key, params, &buffers, Grid::tiles(1, 1), logits)?;
    plan.cost(Cost { token_bytes: logits.cols as u64 * 8, token_flops: logits.cols as u64 * 4, ..Cost::default() });
    Ok(())
}

/// logits [T, shard], made anew, become their gradient: (probability - 1 at the label) dy. dy [T] (f32) is the share of
/// each token's loss in the whole; seen as [`cross_entropy`] left it after the last shard.
pub fn cross_entropy_backward(
    plan: &mut PlanBuilder,
    label: &str,
    logits: &Tensor,
    first: u32,
    labels: &wgpu::Buffer,
    dy: &wgpu::Buffer,
    seen: &wgpu::Buffer,
) -> Result<()> {
    let params = CrossEntropyBackwardParams { cols: logits.cols, first, stride: logits.stride() };
    let key = KernelKey::new(&[&["cross_entropy_backward.wgsl"]]);
    let buffers = [("labels", labels), ("dy", dy), ("seen", seen), ("logits", &logits.buffer)];
    plan.step(label, &key, params, &buffers, Grid::lanes(logits.cols), logits)?;
    plan.cost(Cost { token_bytes: logits.cols as u64 * 4, token_flops: logits.cols as u64 * 4, ..Cost::default() });
    Ok(())
}
