//! F32, F16 and BF16: a block is one weight.

use super::half_at;

pub(super) fn decode_f32(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([block[0], block[1], block[2], block[3]]);
}

pub(super) fn decode_f16(block: &[u8], out: &mut [f32]) {
    out[0] = half_at(block, 0);
}

pub(super) fn decode_bf16(block: &[u8], out: &mut [f32]) {
    out[0] = f32::from_bits((u16::from_le_bytes([block[0], block[1]]) as u32) << 16);
}
