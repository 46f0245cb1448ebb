// Q5_1: w = d * q + m. Quants: 16 bytes a block. Scales: d and m (halves), then the fifth bits: two words a block.

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let dm = unpack2x16float(scales[block * 2u]);
    let fifth = scales[block * 2u + 1u];
    return Packed(low_nibbles(q) | fifth_low(fifth), high_nibbles(q) | fifth_high(fifth), vec2<f32>(dm.x), dm.y);
}
