// Q4_1: w = d * q + m. Quants: 16 bytes a block. Scales: d and m, a word a block.

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let dm = unpack2x16float(scales[block]);
    return Packed(low_nibbles(q), high_nibbles(q), vec2<f32>(dm.x), dm.y);
}
