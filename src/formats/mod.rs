//! Weight formats: how the weights of a tensor lie in its bytes, and their decoding and encoding on the CPU.
//! `shaders/formats/NAME.wgsl` decodes the same block on the GPU.

mod k_quants;
pub mod layout;
mod legacy;
mod plain;

use crate::gguf::TensorType;
use half::f16;

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

    /// The format of a name, in capitals or not.
    pub fn from_name(name: &str) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.name().eq_ignore_ascii_case(name))
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

    /// Appends the blocks that come nearest to some weights: no weight is moved by more than half a step of its block's
    /// grid, unless it lies beyond what the block's scale, a half, can reach (blocks of 32: at least 65504; K-quants:
    /// at least 4e6). Formats that are no blocks round to the nearest number, the largest finite one for what is beyond.
    /// In blocks NaN counts as zero.
    ///
    /// # Panics
    /// If the weights are not whole blocks.
    pub fn encode(self, weights: &[f32], out: &mut Vec<u8>) {
        assert_eq!(weights.len() % self.block_weights(), 0, "encode takes whole blocks");
        let encode_block = match self {
            F32 => plain::encode_f32,
            F16 => plain::encode_f16,
            BF16 => plain::encode_bf16,
            Q4_0 => legacy::encode_q4_0,
            Q4_1 => legacy::encode_q4_1,
            Q5_0 => legacy::encode_q5_0,
            Q5_1 => legacy::encode_q5_1,
            Q8_0 => legacy::encode_q8_0,
            Q4_K => k_quants::encode_q4_k,
            Q5_K => k_quants::encode_q5_k,
            Q6_K => k_quants::encode_q6_k,
        };
        out.reserve(weights.len() / self.block_weights() * self.block_bytes());
        if self.block_weights() == 1 {
            return weights.chunks_exact(1).for_each(|weight| encode_block(weight, out));
        }
        let mut finite = vec![0.0; self.block_weights()];
        for block in weights.chunks_exact(self.block_weights()) {
            for (to, &from) in finite.iter_mut().zip(block) {
                *to = if from.is_nan() { 0.0 } else { from.clamp(-BEYOND, BEYOND) };
            }
            encode_block(&finite, out);
        }
    }
}

/// More than any block reaches, and far from where sums of squares overflow.
const BEYOND: f32 = 1e9;

/// The half at `at`.
fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// The scale of a grid whose `steps` steps span so much: the nearest half, or the next one if with that the end of the
/// span would be more than half a step away, as happens among subnormal ones.
fn spanning(span: f32, steps: f32) -> f16 {
    let d = f16::from_f32((span / steps).min(f16::MAX.to_f32()));
    if span > (steps + 0.5) * d.to_f32() && d < f16::MAX { f16::from_bits(d.to_bits() + 1) } else { d }
}

/// The largest half that is not above x.
fn half_below(x: f32) -> f16 {
    let x = x.clamp(f16::MIN.to_f32(), f16::MAX.to_f32());
    let half = f16::from_f32(x);
    match half.to_f32() > x {
        true if half.is_sign_negative() => f16::from_bits(half.to_bits() + 1),
        true => f16::from_bits(half.to_bits() - 1),
        false => half,
    }
}

/// The level nearest to x, from 0 to `top`; NaN, which is 0 / 0 here, is level 0.
fn level(x: f32, top: u8) -> u8 {
    ((x + 0.5) as u8).min(top)
}

/// What an encoder compares grids by: the sum of the squared errors of (weight, decoded) pairs; the worst there is if
/// any is more than half a step off.
fn cost(pairs: impl Iterator<Item = (f32, f32)>, step: f32) -> f32 {
    let (mut sum, mut far) = (0.0, false);
    for (weight, decoded) in pairs {
        let error = (weight - decoded).abs();
        far |= error > 0.5001 * step + f32::EPSILON * weight.abs(); // with what f32 itself rounds
        sum += error * error;
    }
    if far { f32::MAX } else { sum }
}
