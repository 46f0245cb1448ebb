// Q4_0: w = d * (q - 8). Quants: 16 bytes a block. Scales: d, a half a block.

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let d = half_at(0u, block);
    return Packed(low_nibbles(q), high_nibbles(q), vec2<f32>(d), -8.0 * d);
}
