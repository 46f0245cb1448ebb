//! Q4_0, Q4_1, Q5_0, Q5_1 and Q8_0: blocks of 32 weights with one scale d (a half) and, in the _1 formats, a minimum m.
//! In the 4- and 5-bit formats byte j of the nibbles holds weight j (low) and weight j + 16 (high).

use super::{cost, half_at, half_below, level, spanning};
use half::f16;

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

pub(super) fn encode_q4_0(weights: &[f32], out: &mut Vec<u8>) {
    let (d, q) = symmetric(weights, 8);
    out.extend(d.to_le_bytes());
    out.extend(nibbles(&q));
}

pub(super) fn encode_q4_1(weights: &[f32], out: &mut Vec<u8>) {
    let (d, m, q) = with_minimum(weights, 15);
    out.extend(d.to_le_bytes());
    out.extend(m.to_le_bytes());
    out.extend(nibbles(&q));
}

pub(super) fn encode_q5_0(weights: &[f32], out: &mut Vec<u8>) {
    let (d, q) = symmetric(weights, 16);
    out.extend(d.to_le_bytes());
    out.extend(fifths(&q).to_le_bytes());
    out.extend(nibbles(&q));
}

pub(super) fn encode_q5_1(weights: &[f32], out: &mut Vec<u8>) {
    let (d, m, q) = with_minimum(weights, 31);
    out.extend(d.to_le_bytes());
    out.extend(m.to_le_bytes());
    out.extend(fifths(&q).to_le_bytes());
    out.extend(nibbles(&q));
}

pub(super) fn encode_q8_0(weights: &[f32], out: &mut Vec<u8>) {
    let d = spanning(weights.iter().fold(0.0, |most, w| w.abs().max(most)), 127.0);
    out.extend(d.to_le_bytes());
    out.extend(weights.iter().map(|w| (w / d.to_f32()).round() as i8 as u8)); // 0 / 0 is 0
}

/// Scale and levels (from 0) of the best grid w = d * (q - middle), q from 0 to 2 * middle - 1. The weight of the largest
/// magnitude is tried at each level of the outer half; -middle, which the other end lacks, is reached by d's sign.
fn symmetric(weights: &[f32], middle: i32) -> (f16, [u8; 32]) {
    let extreme = weights.iter().fold(0.0f32, |most, &w| if w.abs() > most.abs() { w } else { most });
    let levels = |d: f16| -> [u8; 32] {
        std::array::from_fn(|j| level(weights[j] / d.to_f32() + middle as f32, 2 * middle as u8 - 1))
    };
    if extreme == 0.0 {
        return (f16::ZERO, [middle as u8; 32]);
    }
    let mut best = (f32::INFINITY, f16::ZERO);
    for at in (-middle..=-middle / 2).chain(middle / 2..middle) {
        let d = spanning(extreme.abs(), at.abs() as f32);
        let d = if (extreme < 0.0) == (at < 0) { d } else { -d };
        let decoded = levels(d).map(|q| d.to_f32() * (q as i32 - middle) as f32);
        let cost = cost(weights.iter().copied().zip(decoded), d.to_f32().abs());
        if cost < best.0 {
            best = (cost, d);
        }
    }
    (best.1, levels(best.1))
}

/// Scale, minimum and levels of the grid w = d * q + m, q from 0 to `top`, that begins at the smallest weight, or less
/// than a half's rounding below it, and ends at the largest.
fn with_minimum(weights: &[f32], top: u8) -> (f16, f16, [u8; 32]) {
    let m = half_below(weights.iter().copied().fold(f32::INFINITY, f32::min));
    let highest = weights.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let d = spanning(highest - m.to_f32(), top as f32);
    (d, m, std::array::from_fn(|j| level((weights[j] - m.to_f32()) / d.to_f32(), top)))
}

/// The low four bits of 32 levels, as the blocks have them.
fn nibbles(q: &[u8; 32]) -> [u8; 16] {
    std::array::from_fn(|j| q[j] & 15 | q[j + 16] << 4)
}

fn fifths(q: &[u8; 32]) -> u32 {
    (0..32).fold(0, |bits, j| bits | (q[j] as u32 >> 4 & 1) << j)
}
