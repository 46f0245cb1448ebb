// The fifth bits of Q5_0, Q5_1 and Q5_K: bit j of byte l belongs to weight 4j + l, so a shift brings four of them to the
// bytes of their weights.

fn fifth_low(bits: u32) -> vec4<u32> {
    return ((vec4<u32>(bits) >> vec4<u32>(0u, 1u, 2u, 3u)) & vec4<u32>(0x01010101u)) << vec4<u32>(4u);
}

fn fifth_high(bits: u32) -> vec4<u32> {
    return fifth_low(bits >> 4u);
}
