//! Q4_K, Q5_K and Q6_K: super-blocks of 256 weights, eight blocks of 32, whose scales are themselves quantized.

use super::{cost, half_at, half_below, level, spanning};
use half::f16;

/// Scale and minimum of block s, six bits each, from the twelve bytes that hold all sixteen.
fn scale_min(packed: &[u8], s: usize) -> (u8, u8) {
    if s < 4 {
        (packed[s] & 63, packed[s + 4] & 63)
    } else {
        let low = packed[s + 4];
        ((low & 15) | (packed[s - 4] >> 6 << 4), (low >> 4) | (packed[s] >> 6 << 4))
    }
}

/// w = d * scale * q - dmin * min. 144 bytes: d, dmin, 12 of scales, 128 of nibbles; blocks 2i (low) and 2i + 1 (high)
/// share 32 bytes.
pub(super) fn decode_q4_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    for (s, weights) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(&block[4..16], s);
        let (scale, min) = (d * scale as f32, dmin * min as f32);
        let nibbles = &block[16 + s / 2 * 32..][..32];
        for (weight, byte) in weights.iter_mut().zip(nibbles) {
            *weight = scale * (byte >> (s % 2 * 4) & 15) as f32 - min;
        }
    }
}

/// As Q4_K with a fifth bit. 176 bytes: d, dmin, 12 of scales, 32 of high bits (bit s of byte l is weight l of block s),
/// 128 of nibbles.
pub(super) fn decode_q5_k(block: &[u8], out: &mut [f32]) {
    let (d, dmin) = (half_at(block, 0), half_at(block, 2));
    let high = &block[16..48];
    for (s, weights) in out.chunks_exact_mut(32).enumerate() {
        let (scale, min) = scale_min(&block[4..16], s);
        let (scale, min) = (d * scale as f32, dmin * min as f32);
        let nibbles = &block[48 + s / 2 * 32..][..32];
        for (l, weight) in weights.iter_mut().enumerate() {
            let q = (nibbles[l] >> (s % 2 * 4) & 15) | (high[l] >> s & 1) << 4;
            *weight = scale * q as f32 - min;
        }
    }
}

/// w = d * scale * (q - 32), a signed scale for 16 weights. 210 bytes: 128 of low nibbles, 64 of high bit pairs,
/// 16 scales, d. Each half of 128 weights has 64 + 32 bytes: of its four blocks, 0 and 1 take the low nibbles of its two
/// rows of 32 bytes, 2 and 3 the high ones; block g takes bits 2g and 2g + 1 of the pairs.
pub(super) fn decode_q6_k(block: &[u8], out: &mut [f32]) {
    let d = half_at(block, 208);
    for (s, weights) in out.chunks_exact_mut(32).enumerate() {
        let (half, g) = (s / 4, s % 4);
        let low = &block[half * 64 + g % 2 * 32..][..32];
        let high = &block[128 + half * 32..][..32];
        for (l, weight) in weights.iter_mut().enumerate() {
            let q = (low[l] >> (g / 2 * 4) & 15) | (high[l] >> (g * 2) & 3) << 4;
            let scale = block[192 + s * 2 + l / 16] as i8;
            *weight = d * scale as f32 * (q as i32 - 32) as f32;
        }
    }
}

pub(super) fn encode_q4_k(weights: &[f32], out: &mut Vec<u8>) {
    let blocks = ScaleMin::fit(weights, 15);
    blocks.put_scales(out);
    blocks.put_nibbles(out);
}

pub(super) fn encode_q5_k(weights: &[f32], out: &mut Vec<u8>) {
    let blocks = ScaleMin::fit(weights, 31);
    blocks.put_scales(out);
    out.extend((0..32).map(|l| (0..8).fold(0, |byte, s| byte | (blocks.q[32 * s + l] >> 4 & 1) << s)));
    blocks.put_nibbles(out);
}

/// A super-block of Q4_K or Q5_K before it is packed: w = d * scale * q - dmin * min.
struct ScaleMin {
    d: f16,
    dmin: f16,
    scales: [u8; 8],
    mins: [u8; 8],
    q: [u8; 256],
}

impl ScaleMin {
    /// `top` is the highest level. dmin and d are such that a grid can begin at or below the lowest weight of each block
    /// and reach the highest; near those bounds, the scale and minimum with the smallest error are taken.
    fn fit(weights: &[f32], top: u8) -> ScaleMin {
        let blocks: [&[f32]; 8] = std::array::from_fn(|s| &weights[32 * s..32 * (s + 1)]);
        let depth = blocks.map(|block| -block.iter().copied().fold(0.0, f32::min)); // a minimum is never above zero
        let highest = blocks.map(|block| block.iter().copied().fold(f32::NEG_INFINITY, f32::max));
        let dmin = -half_below(-depth.iter().copied().fold(0.0, f32::max) / 63.0);
        let lowest_min = depth.map(|depth| ((depth / dmin.to_f32()).ceil() as u8).min(63));
        let span: [f32; 8] = std::array::from_fn(|s| highest[s] + dmin.to_f32() * lowest_min[s] as f32);
        let d = spanning(span.iter().copied().fold(0.0, f32::max) / 63.0, top as f32);
        let mut fit = ScaleMin { d, dmin, scales: [0; 8], mins: [0; 8], q: [0; 256] };
        for (s, block) in blocks.into_iter().enumerate() {
            let smallest = ((span[s] / (d.to_f32() * (top as f32 + 0.5))).ceil() as u8).min(63);
            let mut best = f32::INFINITY;
            for min in [lowest_min[s], lowest_min[s].saturating_sub(1)] {
                for scale in smallest..=(smallest + smallest / 8 + 1).min(63) {
                    let (step, offset) = (d.to_f32() * scale as f32, dmin.to_f32() * min as f32);
                    let q: [u8; 32] = std::array::from_fn(|l| level((block[l] + offset) / step, top));
                    let decoded = q.map(|q| step * q as f32 - offset);
                    let cost = cost(block.iter().copied().zip(decoded), step);
                    if cost < best {
                        best = cost;
                        (fit.scales[s], fit.mins[s]) = (scale, min);
                        fit.q[32 * s..32 * (s + 1)].copy_from_slice(&q);
                    }
                }
            }
        }
        fit
    }

    /// d, dmin, and the twelve bytes that [`scale_min`] reads.
    fn put_scales(&self, out: &mut Vec<u8>) {
        let ScaleMin { d, dmin, scales, mins, .. } = self;
        out.extend(d.to_le_bytes());
        out.extend(dmin.to_le_bytes());
        out.extend((0..4).map(|s| scales[s] | scales[s + 4] >> 4 << 6));
        out.extend((0..4).map(|s| mins[s] | mins[s + 4] >> 4 << 6));
        out.extend((4..8).map(|s| scales[s] & 15 | mins[s] << 4));
    }

    fn put_nibbles(&self, out: &mut Vec<u8>) {
        out.extend((0..128).map(|j| {
            let low = j / 32 * 64 + j % 32;
            self.q[low] & 15 | self.q[low + 32] << 4
        }));
    }
}

/// Scales are positive and levels go from -31 to 31: -32 stays unused. Of the scales that reach a block's largest weight,
/// the one with the smallest error is taken.
pub(super) fn encode_q6_k(weights: &[f32], out: &mut Vec<u8>) {
    let blocks: [&[f32]; 16] = std::array::from_fn(|s| &weights[16 * s..16 * (s + 1)]);
    let most = blocks.map(|block| block.iter().fold(0.0, |most, w| w.abs().max(most)));
    let d = spanning(most.iter().copied().fold(0.0, f32::max) / 127.0, 31.0);
    let (mut scales, mut q) = ([0; 16], [32; 256]);
    for (s, block) in blocks.into_iter().enumerate() {
        let smallest = ((most[s] / (d.to_f32() * 31.5)).ceil() as u8).min(127);
        let mut best = f32::INFINITY;
        for scale in smallest..=(smallest + smallest / 16 + 1).min(127) {
            let step = d.to_f32() * scale as f32;
            let levels: [u8; 16] = match step > 0.0 {
                true => std::array::from_fn(|l| level(block[l] / step + 31.0, 62) + 1),
                false => [32; 16],
            };
            let decoded = levels.map(|q| step * (q as i32 - 32) as f32);
            let cost = cost(block.iter().copied().zip(decoded), step);
            if cost < best {
                best = cost;
                scales[s] = scale;
                q[16 * s..16 * (s + 1)].copy_from_slice(&levels);
            }
        }
    }
    // (half, row, byte) of the low nibbles and (half, byte) of the pairs, as decode_q6_k reads them
    out.extend((0..128).map(|j| {
        let low = j / 64 * 128 + j % 64;
        q[low] & 15 | q[low + 64] << 4
    }));
    out.extend((0..64).map(|j| (0..4).fold(0, |byte, g| byte | q[j / 32 * 128 + 32 * g + j % 32] >> 4 << (2 * g))));
    out.extend(scales);
    out.extend(d.to_le_bytes());
}
