// Keys and values into a cache of bytes (kv/q8_0.wgsl, bytes.wgsl). kv/write.wgsl defines the same names.

const KV_BLOCK: u32 = 8u; // vec4 that share a scale

fn kv_most(v: vec4<f32>) -> u32 {
    return most4(v);
}

// `most` is the largest of the block; the lane with its first vec4 writes the scale.
fn put_key(i: u32, v: vec4<f32>, most: u32) {
    let scale = scale_of(most);
    k_cache[kv_word(i)] = pack4xI8(quantize4(v, scale.inverse));
    if ((i & 7u) == 0u) {
        k_cache[kv_scale_word(i)] = bitcast<u32>(scale.scale);
    }
}

fn put_value(i: u32, v: vec4<f32>, most: u32) {
    let scale = scale_of(most);
    v_cache[kv_word(i)] = pack4xI8(quantize4(v, scale.inverse));
    if ((i & 7u) == 0u) {
        v_cache[kv_scale_word(i)] = bitcast<u32>(scale.scale);
    }
}
