//! F32, F16 and BF16: a block is one weight.

use super::half_at;
use half::{bf16, f16};

pub(super) fn decode_f32(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

pub(super) fn decode_f16(block: &[u8], out: &mut [f32]) {
    out[0] = half_at(block, 0);
}

pub(super) fn decode_bf16(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_bits((u16::from_le_bytes([block[0], block[1]]) as u32) << 16);
}

pub(super) fn encode_f32(weight: &[f32], out: &mut Vec<u8>) {
    out.extend(weight[0].to_le_bytes());
}

pub(super) fn encode_f16(weight: &[f32], out: &mut Vec<u8>) {
    out.extend(f16::from_f32(weight[0].clamp(f16::MIN.to_f32(), f16::MAX.to_f32())).to_le_bytes());
}

pub(super) fn encode_bf16(weight: &[f32], out: &mut Vec<u8>) {
    out.extend(bf16::from_f32(weight[0].clamp(bf16::MIN.to_f32(), bf16::MAX.to_f32())).to_le_bytes());
}
