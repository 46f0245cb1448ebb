// Keys and values out of a cache of bytes (kv/q8_0.wgsl). kv/read.wgsl defines the same names.

fn key_at(i: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(k_cache[kv_word(i)])) * bitcast<f32>(k_cache[kv_scale_word(i)]);
}

fn value_at(i: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(v_cache[kv_word(i)])) * bitcast<f32>(v_cache[kv_scale_word(i)]);
}
