// The scales of a quantized tensor as words.

@group(0) @binding(3) var<storage, read> scales: array<u32>; // [rows, blocks, ..]

// Half number `i` of those that begin at word `first`.
fn half_at(first: u32, i: u32) -> f32 {
    let pair = unpack2x16float(scales[first + (i >> 1u)]);
    return select(pair.x, pair.y, (i & 1u) != 0u);
}
