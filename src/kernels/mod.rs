//! One file per op: its params (the twin of the shader's struct), shape checks, and the step that it adds to a plan.
//! The same name stands for the shader, the file here, the reference in `reference::ops` and the test.

pub mod attention;
pub mod dot_bytes;
pub mod embed;
pub mod linear;
pub mod multiply_add;
pub mod quantize;
pub mod rms_norm;
pub mod rope_kv;
pub mod softmax;
pub mod stream;
pub mod swiglu;
pub mod top_k;

use crate::gpu::Gpu;

/// Element type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum KvFormat {
    #[default]
    F16,
    F32,
}

impl KvFormat {
    pub fn bytes(self) -> u32 {
        match self {
            KvFormat::F16 => 2,
            KvFormat::F32 => 4,
        }
    }

    fn file(self) -> &'static str {
        match self {
            KvFormat::F16 => "kv/f16.wgsl",
            KvFormat::F32 => "kv/f32.wgsl",
        }
    }
}

/// The file that defines `group_sum` and `group_max` for this device.
fn reduce(gpu: &Gpu) -> &'static str {
    if gpu.profile().subgroups { "reduce/subgroup.wgsl" } else { "reduce/shared.wgsl" }
}
