// Q5_0: w = d * (q - 16). Quants: 16 bytes a block. Scales, for two blocks: their fifth bits (a word each), their d (halves).

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let i = (block >> 1u) * 3u;
    let fifth = scales[i + (block & 1u)];
    let d = half_at(i + 2u, block & 1u);
    return Packed(low_nibbles(q) | fifth_low(fifth), high_nibbles(q) | fifth_high(fifth), vec2<f32>(d), -16.0 * d);
}
