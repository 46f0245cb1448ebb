// Keys and values out of a cache of numbers (kv/f16.wgsl, kv/f32.wgsl). kv/q8_0_read.wgsl defines the same names.

fn key_at(i: u32) -> vec4<f32> {
    return kv_unpack(k_cache[i]);
}

fn value_at(i: u32) -> vec4<f32> {
    return kv_unpack(v_cache[i]);
}
