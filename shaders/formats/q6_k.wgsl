// Q6_K: w = d * scale * (q - 32). Quants: the low nibbles, 16 bytes a block. Scales, for two super-blocks, 41 words: for
// each, the upper bit pairs (two words a block: bits 2j and 2j + 1 of byte l belong to weight 4j + l of its half of the
// block) and sixteen signed scales (one for 16 weights); then their d (halves).

// q - 32 of four bytes below 64: bit 5 turned over is the sign, which goes on through bits 6 and 7.
fn minus_32(q: vec4<u32>) -> vec4<u32> {
    let turned = q ^ vec4<u32>(0x20202020u);
    return turned | ((turned & vec4<u32>(0x20202020u)) * vec4<u32>(6u));
}

fn pairs(bits: u32) -> vec4<u32> {
    return ((vec4<u32>(bits) >> vec4<u32>(0u, 2u, 4u, 6u)) & vec4<u32>(0x03030303u)) << vec4<u32>(4u);
}

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let super_block = block >> 3u;
    let s = block & 7u;
    let two = (super_block >> 1u) * 41u;
    let own = two + (super_block & 1u) * 20u;
    let low = minus_32(low_nibbles(q) | pairs(scales[own + 2u * s]));
    let high = minus_32(high_nibbles(q) | pairs(scales[own + 2u * s + 1u]));
    let scale = unpack4xI8(scales[own + 16u + (s >> 1u)] >> ((s & 1u) * 16u));
    return Packed(low, high, half_at(two + 40u, super_block & 1u) * vec2<f32>(scale.xy), 0.0);
}
