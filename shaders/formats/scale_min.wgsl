// The packed scales of Q4_K and Q5_K.

// Scale and minimum of sub-block s, six bits each, of the twelve bytes that begin at word i.
fn scale_min(i: u32, s: u32) -> vec2<f32> {
    let shift = (s & 3u) * 8u;
    let a = weights[i] >> shift;
    let b = weights[i + 1u] >> shift;
    let c = weights[i + 2u] >> shift;
    let low = vec2<u32>(a & 63u, b & 63u);
    let high = vec2<u32>((c & 15u) | ((a >> 2u) & 48u), ((c >> 4u) & 15u) | ((b >> 2u) & 48u));
    return vec2<f32>(select(low, high, s >= 4u));
}
