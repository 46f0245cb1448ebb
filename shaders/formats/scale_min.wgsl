// The scales of Q4_K and Q5_K, four words at a time.

@group(0) @binding(3) var<storage, read> scales: array<vec4<u32>>; // [rows, super-blocks, 1 or 3]

// Scale and minimum of block s of a super-block, whose head is d, dmin (halves), then twelve bytes with six bits for
// each scale and each minimum.
fn scale_min(head: vec4<u32>, s: u32) -> vec2<f32> {
    let shift = (s & 3u) * 8u;
    let a = head.y >> shift;
    let b = head.z >> shift;
    let c = head.w >> shift;
    let low = vec2<u32>(a & 63u, b & 63u);
    let high = vec2<u32>((c & 15u) | ((a >> 2u) & 48u), ((c >> 4u) & 15u) | ((b >> 2u) & 48u));
    return unpack2x16float(head.x) * vec2<f32>(select(low, high, s >= 4u));
}
