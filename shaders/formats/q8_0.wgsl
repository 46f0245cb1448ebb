// Q8_0: w = d * q. Quants: 32 bytes a block. Scales: d, a half a block.

fn packed(block: u32) -> Packed {
    return Packed(quants[block * 2u], quants[block * 2u + 1u], vec2<f32>(half_at(0u, block)), 0.0);
}
