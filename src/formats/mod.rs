//! Weight formats: how the weights of a tensor lie in its bytes, and their decoding on the CPU.
//! `shaders/formats/NAME.wgsl` decodes the same block on the GPU.

mod k_quants;
pub mod layout;
mod legacy;
mod plain;

use crate::gguf::TensorType;

/// A format that we compute with.
#[allow(non_camel_case_types)] // the names that everybody uses
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    F32,
    F16,
    BF16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q4_K,
    Q5_K,
    Q6_K,
}

use Format::*;

impl Format {
    pub const ALL: [Format; 11] = [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q4_K, Q5_K, Q6_K];

    pub fn name(self) -> &'static str {
        match self {
            F32 => "F32",
            F16 => "F16",
            BF16 => "BF16",
            Q4_0 => "Q4_0",
            Q4_1 => "Q4_1",
            Q5_0 => "Q5_0",
            Q5_1 => "Q5_1",
            Q8_0 => "Q8_0",
            Q4_K => "Q4_K",
            Q5_K => "Q5_K",
            Q6_K => "Q6_K",
        }
    }

    /// The number that stands for this format in a file.
    pub fn tensor_type(self) -> TensorType {
        TensorType::from_name(self.name()).expect("every format is a tensor type")
    }

    /// The format of a tensor type; None for types that we know of but do not compute with.
    pub fn from_type(kind: TensorType) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.tensor_type() == kind)
    }

    /// Weights of one block; rows are whole blocks.
    pub fn block_weights(self) -> usize {
        match self {
            F32 | F16 | BF16 => 1,
            Q4_0 | Q4_1 | Q5_0 | Q5_1 | Q8_0 => 32,
            Q4_K | Q5_K | Q6_K => 256,
        }
    }

    /// Bytes of one block.
    pub fn block_bytes(self) -> usize {
        match self {
            F32 => 4,
            F16 | BF16 => 2,
            Q4_0 => 18,
            Q4_1 => 20,
            Q5_0 => 22,
            Q5_1 => 24,
            Q8_0 => 34,
            Q4_K => 144,
            Q5_K => 176,
            Q6_K => 210,
        }
    }

    /// Decodes whole blocks: `out` is as long as the weights in `bytes`.
    ///
    /// # Panics
    /// If `bytes` are not whole blocks, or `out` is of another length.
    pub fn decode(self, bytes: &[u8], out: &mut [f32]) {
        assert_eq!(bytes.len() % self.block_bytes(), 0, "decode takes whole blocks");
        assert_eq!(bytes.len() / self.block_bytes() * self.block_weights(), out.len(), "out is as long as the weights");
        let decode_block = match self {
            F32 => plain::decode_f32,
            F16 => plain::decode_f16,
            BF16 => plain::decode_bf16,
            Q4_0 => legacy::decode_q4_0,
            Q4_1 => legacy::decode_q4_1,
            Q5_0 => legacy::decode_q5_0,
            Q5_1 => legacy::decode_q5_1,
            Q8_0 => legacy::decode_q8_0,
            Q4_K => k_quants::decode_q4_k,
            Q5_K => k_quants::decode_q5_k,
            Q6_K => k_quants::decode_q6_k,
        };
        for (block, weights) in bytes.chunks_exact(self.block_bytes()).zip(out.chunks_exact_mut(self.block_weights())) {
            decode_block(block, weights);
        }
    }
}

/// The half at `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}
