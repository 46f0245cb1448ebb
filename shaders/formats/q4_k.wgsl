// Q4_K: w = d * scale * q - dmin * min. A super-block of 256 weights is eight blocks in 144 bytes: d, dmin (halves),
// 12 bytes of scales and minima, then 128 bytes; block s lies in 32 bytes, low nibbles for even s, high ones for odd.

fn quad(scale: f32, minimum: f32, nibbles: u32) -> vec4<f32> {
    return scale * vec4<f32>(unpack4xU8(nibbles & 0x0f0f0f0fu)) - minimum;
}

fn decode(block: u32) -> Block {
    let i = (block >> 3u) * 36u;
    let s = block & 7u;
    let dm = unpack2x16float(weights[i]) * scale_min(i + 1u, s);
    let q = i + 4u + (s >> 1u) * 8u;
    let shift = (s & 1u) * 4u;
    return Block(
        quad(dm.x, dm.y, weights[q] >> shift), quad(dm.x, dm.y, weights[q + 1u] >> shift),
        quad(dm.x, dm.y, weights[q + 2u] >> shift), quad(dm.x, dm.y, weights[q + 3u] >> shift),
        quad(dm.x, dm.y, weights[q + 4u] >> shift), quad(dm.x, dm.y, weights[q + 5u] >> shift),
        quad(dm.x, dm.y, weights[q + 6u] >> shift), quad(dm.x, dm.y, weights[q + 7u] >> shift),
    );
}
