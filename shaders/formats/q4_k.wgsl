// Q4_K: w = d * scale * q - dmin * min. Quants: 16 bytes a block. Scales: four words a super-block (scale_min.wgsl).

fn packed(block: u32) -> Packed {
    let q = quants[block];
    let sm = scale_min(scales[block >> 3u], block & 7u);
    return Packed(low_nibbles(q), high_nibbles(q), vec2<f32>(sm.x), -sm.y);
}
