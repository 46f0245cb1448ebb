// Keys and values into a cache of numbers (kv/f16.wgsl, kv/f32.wgsl). kv/q8_0_write.wgsl defines the same names.

const KV_BLOCK: u32 = 1u; // vec4 that share a scale

fn kv_most(v: vec4<f32>) -> u32 {
    return 0u;
}

fn put_key(i: u32, v: vec4<f32>, most: u32) {
    k_cache[i] = kv_pack(v);
}

fn put_value(i: u32, v: vec4<f32>, most: u32) {
    v_cache[i] = kv_pack(v);
}
