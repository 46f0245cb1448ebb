// The KV cache in f16, packed two to a word, so that devices without shader-f16 have it too.
// kv/f32.wgsl defines the same names.

alias Kv4 = vec2<u32>; // four neighbouring channels of one key or value

// Beyond the largest half pack2x16float may give anything, so values are clamped to it.
fn kv_pack(v: vec4<f32>) -> Kv4 {
    let c = clamp(v, vec4<f32>(-65504.0), vec4<f32>(65504.0));
    return vec2<u32>(pack2x16float(c.xy), pack2x16float(c.zw));
}

fn kv_unpack(kv: Kv4) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(kv.x), unpack2x16float(kv.y));
}
