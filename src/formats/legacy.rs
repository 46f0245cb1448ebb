//! Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: blocks of 32 weights with one scale d (a half) and, in the _1 formats, a minimum m.
//! In the 4- and 5-bit formats byte j of the nibbles holds weight j (low) and weight j + 16 (high).

use super::half_at;

/// w = d * (q - 8). 18 bytes: d, 16 bytes of nibbles.
pub(super) fn decode_q4_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (j, byte) in block[2..18].iter().enumerate() {
        out[j] = d * ((byte & 15) as i32 - 8) as f32;
        out[j + 16] = d * ((byte >> 4) as i32 - 8) as f32;
    }
}

/// w = d * q + m. 20 bytes: d, m, 16 bytes of nibbles.
pub(super) fn decode_q4_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    for (j, byte) in block[4..20].iter().enumerate() {
        out[j] = d * (byte & 15) as f32 + m;
        out[j + 16] = d * (byte >> 4) as f32 + m;
    }
}

/// Weight j's fifth bit, in its place.
fn fifth(high: u32, j: usize) -> u32 {
    (high >> j & 1) << 4
}

/// w = d * (q - 16). 22 bytes: d, 32 high bits, 16 bytes of nibbles.
pub(super) fn decode_q5_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    let high = u32::from_le_bytes([block[2], block[3], block[4], block[5]]);
    for (j, byte) in block[6..22].iter().enumerate() {
        out[j] = d * (((byte & 15) as u32 | fifth(high, j)) as i32 - 16) as f32;
        out[j + 16] = d * (((byte >> 4) as u32 | fifth(high, j + 16)) as i32 - 16) as f32;
    }
}

/// w = d * q + m. 24 bytes: d, m, 32 high bits, 16 bytes of nibbles.
pub(super) fn decode_q5_1(block: &[u8], out: &mut [f32]) {
    let (d, m) = (half_at(block, 0), half_at(block, 2));
    let high = u32::from_le_bytes([block[4], block[5], block[6], block[7]]);
    for (j, byte) in block[8..24].iter().enumerate() {
        out[j] = d * ((byte & 15) as u32 | fifth(high, j)) as f32 + m;
        out[j + 16] = d * ((byte >> 4) as u32 | fifth(high, j + 16)) as f32 + m;
    }
}

/// w = d * q. 34 bytes: d, 32 signed bytes.
pub(super) fn decode_q8_0(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 0);
    for (weight, byte) in out.iter_mut().zip(&block[2..34]) {
        *weight = d * (*byte as i8) as f32;
    }
}
