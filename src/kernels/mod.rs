//! One file per op: its params (the twin of the shader's struct), shape checks, and the step that it adds to a plan.
//! The same name stands for the shader, the file here, the reference in `reference::ops` and the test.

pub mod add;
pub mod add_bias_backward;
pub mod attention;
pub mod attention_backward;
pub mod cross_entropy;
pub mod dot_bytes;
pub mod dropout;
pub mod embed;
pub mod embed_backward;
pub mod heads_norm_backward;
pub mod linear;
pub mod matmul_dw;
pub mod matmul_dx;
pub mod multiply_add;
pub mod optimizer;
pub mod quantize;
pub mod rms_norm;
pub mod rms_norm_backward;
pub mod rope;
pub mod rope_backward;
pub mod rope_kv;
pub mod row_scale;
pub mod sample;
pub mod softmax;
pub mod statistics;
pub mod stream;
pub mod swiglu;
pub mod swiglu_backward;

use crate::gpu::Gpu;
use crate::tensor::Tensor;

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvFormat {
    #[default]
    F16,
    F32,
    /// Bytes with a scale for each 32 channels; heads must be multiples of 32.
    Q8_0,
}

impl KvFormat {
    /// Bytes that so many channels take.
    pub fn bytes(self, channels: u64) -> u64 {
        match self {
            KvFormat::F16 => channels * 2,
            KvFormat::F32 => channels * 4,
            KvFormat::Q8_0 => channels / 32 * 36,
        }
    }

    /// The files that define `key_at` and `value_at`.
    fn reading(self) -> &'static [&'static str] {
        match self {
            KvFormat::F16 => &["kv/f16.wgsl", "kv/read.wgsl"],
            KvFormat::F32 => &["kv/f32.wgsl", "kv/read.wgsl"],
            KvFormat::Q8_0 => &["kv/q8_0.wgsl", "kv/q8_0_read.wgsl"],
        }
    }

    /// The files that define `put_key` and `put_value`.
    fn writing(self) -> &'static [&'static str] {
        match self {
            KvFormat::F16 => &["kv/f16.wgsl", "kv/write.wgsl"],
            KvFormat::F32 => &["kv/f32.wgsl", "kv/write.wgsl"],
            KvFormat::Q8_0 => &["bytes.wgsl", "kv/q8_0.wgsl", "kv/q8_0_write.wgsl"],
        }
    }
}

/// What becomes of the results of a backward op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gradient {
    /// They are the gradient.
    Store,
    /// They are added to it: what it belongs to was used several times.
    Add,
}

/// Every `step`-th column of a tensor from `first` on: where the results of some rows of a fused matrix lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Columns {
    pub first: u32,
    pub step: u32,
    pub count: u32,
}

impl Columns {
    pub fn all(tensor: &Tensor) -> Columns {
        Columns { first: 0, step: 1, count: tensor.cols }
    }

    /// Some of these columns, counted from the first.
    pub fn part(self, first: u32, count: u32) -> Columns {
        Columns { first: self.first + first * self.step, step: self.step, count }
    }
}

/// The gradient of y = scale W x, where y is some columns of a tensor.
#[derive(Clone, Copy)]
pub struct Dy<'a> {
    pub tensor: &'a Tensor,
    pub columns: Columns,
    pub scale: f32,
}

impl<'a> From<&'a Tensor> for Dy<'a> {
    fn from(tensor: &'a Tensor) -> Dy<'a> {
        Dy { tensor, columns: Columns::all(tensor), scale: 1.0 }
    }
}

/// Passes of at most so many tokens have kernels of their own; longer ones have those of whole prompts. On real GPUs the
/// first has matvec with a block of weights decoded once for all tokens, the second matmul in half tiles; on processors
/// both have matmul in tiles of so many tokens.
pub const FEW_TOKENS: [u32; 2] = [8, 32];
pub const FEW_TOKENS_ON_LANES: [u32; 2] = [2, 4];

/// [`FEW_TOKENS`] of this device.
pub fn few_tokens(gpu: &Gpu) -> [u32; 2] {
    if gpu.profile().lanes { FEW_TOKENS_ON_LANES } else { FEW_TOKENS }
}

/// The file that defines `group_sum` and `group_max` for this device.
fn reduce(gpu: &Gpu) -> &'static str {
    if gpu.profile().subgroups { "reduce/subgroup.wgsl" } else { "reduce/shared.wgsl" }
}
