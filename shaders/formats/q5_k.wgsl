// Q5_K: w = d * scale * q - dmin * min. Quants: 16 bytes a block. Scales: four words a super-block (scale_min.wgsl), then
// the fifth bits, a word for each of its eight blocks.

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let i = (block >> 3u) * 3u;
    let s = block & 7u;
    let sm = scale_min(scales[i], s);
    let fifth = scales[i + 1u + (s >> 2u)][s & 3u];
    return Packed(low_nibbles(q) | fifth_low(fifth), high_nibbles(q) | fifth_high(fifth), vec2<f32>(sm.x), -sm.y);
}
