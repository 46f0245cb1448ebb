// The packed scales of Q4_K and Q5_K.

// Scale and minimum of block s of a super-block, whose scales begin at word i: d, dmin (halves), then twelve bytes
// with six bits for each scale and each minimum.
fn scale_min(i: u32, s: u32) -> vec2<f32> {
    let shift = (s & 3u) * 8u;
    let a = scales[i + 1u] >> shift;
    let b = scales[i + 2u] >> shift;
    let c = scales[i + 3u] >> shift;
    let low = vec2<u32>(a & 63u, b & 63u);
    let high = vec2<u32>((c & 15u) | ((a >> 2u) & 48u), ((c >> 4u) & 15u) | ((b >> 2u) & 48u));
    return unpack2x16float(scales[i]) * vec2<f32>(select(low, high, s >= 4u));
}
