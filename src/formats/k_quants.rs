//! Q4_K, Q5_K and Q6_K: super-blocks of 256 weights, eight blocks of 32, whose scales are themselves quantized.

use super::half_at;

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
