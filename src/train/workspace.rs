//! What a backward pass works in: the gradients of activations on their way down.

use crate::error::Result;
use crate::gpu::Gpu;
use crate::model::Model;
use crate::tensor::Tensor;
use std::cell::RefCell;
use std::collections::HashMap;

/// Bytes of the logits that are made at once.
const LOGITS_BYTES: u64 = 32 << 20;

/// Gradients of activations; those of one shape and purpose are one tensor for all blocks. T is the most tokens of a pass.
pub(super) struct Workspace {
    gpu: Gpu,
    tokens: u32,
    pub dx: Tensor,           // [T, C] of the residual stream
    pub dnormed: Tensor,      // [T, C] of a norm's results
    pub inverses: Tensor,     // [T, 1]
    pub seen: wgpu::Buffer,   // [T, 4] f32: kernels::cross_entropy
    pub labels: wgpu::Buffer, // [T] u32
    pub shares: wgpu::Buffer, // [T] f32: what a token's loss weighs
    shared: RefCell<HashMap<(&'static str, u32), Tensor>>,
}

impl Workspace {
    pub fn new(model: &Model, tokens: u32) -> Result<Workspace> {
        let (gpu, c) = (model.gpu(), model.config().embedding_length);
        Ok(Workspace {
            gpu: gpu.clone(),
            tokens,
            dx: Tensor::new(gpu, "dx", tokens, c)?,
            dnormed: Tensor::new(gpu, "dnormed", tokens, c)?,
            inverses: Tensor::new(gpu, "inverses", tokens, 1)?,
            seen: gpu.buffer("seen", tokens as u64 * 16)?,
            labels: gpu.buffer("labels", tokens as u64 * 4)?,
            shares: gpu.buffer("shares", tokens as u64 * 4)?,
            shared: RefCell::default(),
        })
    }

    /// The tensor for such a gradient, as wide as `of`.
    pub fn like(&self, of: &Tensor, label: &'static str) -> Result<Tensor> {
        self.like_columns(of.cols, label)
    }

    pub fn like_columns(&self, cols: u32, label: &'static str) -> Result<Tensor> {
        let mut shared = self.shared.borrow_mut();
        if let Some(tensor) = shared.get(&(label, cols)) {
            return Ok(tensor.clone());
        }
        let tensor = Tensor::new(&self.gpu, label, self.tokens, cols)?;
        shared.insert((label, cols), tensor.clone());
        Ok(tensor)
    }
}

/// Ids of the vocabulary whose logits are made at once.
pub(super) fn shard(model: &Model, tokens: u32) -> u32 {
    let most = LOGITS_BYTES.min(model.gpu().max_binding()) / 4 / tokens.max(1) as u64;
    (most as u32 / 64 * 64).clamp(64, model.config().vocab_size.next_multiple_of(64)).min(model.config().vocab_size)
}
