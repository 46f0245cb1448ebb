// The KV cache in f32. kv/f16.wgsl defines the same names.

alias Kv4 = vec4<f32>; // four neighbouring channels of one key or value

fn kv_pack(v: vec4<f32>) -> Kv4 {
    return v;
}

fn kv_unpack(kv: Kv4) -> vec4<f32> {
    return kv;
}
