// Q6_K: w = d * scale * (q - 32). A super-block of 256 weights is eight blocks in 210 bytes: 128 bytes of low nibbles,
// 64 of high bit pairs, 16 signed scales (one for 16 weights), d (half). Each half of 128 weights has 64 + 32 bytes:
// of its blocks 0 to 3, blocks 0 and 1 take the low nibbles of its two 32-byte rows, 2 and 3 the high ones;
// block g takes bits 2g and 2g + 1 of the pairs.

fn quad(scale: f32, low: u32, high: u32) -> vec4<f32> {
    return scale * (vec4<f32>(unpack4xU8((low & 0x0f0f0f0fu) | ((high & 0x03030303u) << 4u))) - 32.0);
}

fn decode(block: u32) -> Block {
    let byte = (block >> 3u) * 210u;
    let s = block & 7u;
    let g = s & 3u;
    let low = byte + (s >> 2u) * 64u + (g & 1u) * 32u;
    let high = byte + 128u + (s >> 2u) * 32u;
    let nibble = (g >> 1u) * 4u;
    let pair = g * 2u;
    // the block's two scales are neighbours, so they lie in one word at an even byte
    let scales = unpack4xI8(word_at(byte + 192u + s * 2u));
    let d = half_at(byte + 208u);
    let d0 = d * f32(scales.x);
    let d1 = d * f32(scales.y);
    return Block(
        quad(d0, word_at(low) >> nibble, word_at(high) >> pair),
        quad(d0, word_at(low + 4u) >> nibble, word_at(high + 4u) >> pair),
        quad(d0, word_at(low + 8u) >> nibble, word_at(high + 8u) >> pair),
        quad(d0, word_at(low + 12u) >> nibble, word_at(high + 12u) >> pair),
        quad(d1, word_at(low + 16u) >> nibble, word_at(high + 16u) >> pair),
        quad(d1, word_at(low + 20u) >> nibble, word_at(high + 20u) >> pair),
        quad(d1, word_at(low + 24u) >> nibble, word_at(high + 24u) >> pair),
        quad(d1, word_at(low + 28u) >> nibble, word_at(high + 28u) >> pair),
    );
}
