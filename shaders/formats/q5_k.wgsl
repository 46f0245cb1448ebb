// Q5_K: w = d * scale * q - dmin * min. A super-block of 256 weights is eight blocks in 176 bytes: d, dmin (halves),
// 12 bytes of scales and minima, 32 bytes of high bits (bit s of byte l: weight l of block s), then nibbles as in Q4_K.

fn quad(scale: f32, minimum: f32, nibbles: u32, high: u32) -> vec4<f32> {
    return scale * vec4<f32>(unpack4xU8((nibbles & 0x0f0f0f0fu) | ((high & 0x01010101u) << 4u))) - minimum;
}

fn decode(block: u32) -> Block {
    let i = (block >> 3u) * 44u;
    let s = block & 7u;
    let dm = unpack2x16float(weights[i]) * scale_min(i + 1u, s);
    let h = i + 4u;
    let q = i + 12u + (s >> 1u) * 8u;
    let shift = (s & 1u) * 4u;
    return Block(
        quad(dm.x, dm.y, weights[q] >> shift, weights[h] >> s),
        quad(dm.x, dm.y, weights[q + 1u] >> shift, weights[h + 1u] >> s),
        quad(dm.x, dm.y, weights[q + 2u] >> shift, weights[h + 2u] >> s),
        quad(dm.x, dm.y, weights[q + 3u] >> shift, weights[h + 3u] >> s),
        quad(dm.x, dm.y, weights[q + 4u] >> shift, weights[h + 4u] >> s),
        quad(dm.x, dm.y, weights[q + 5u] >> shift, weights[h + 5u] >> s),
        quad(dm.x, dm.y, weights[q + 6u] >> shift, weights[h + 6u] >> s),
        quad(dm.x, dm.y, weights[q + 7u] >> shift, weights[h + 7u] >> s),
    );
}
