// Whole sequences between the projections and attention: the norm of each query and key head where the model has one, and
// rotary position embedding of queries and keys; values are copied. rope_kv.wgsl is the version for inference, with a
// cache. One lane takes four channels.

struct Params {
    heads: u32,          // H
    kv_heads: u32,       // KV
    vectors: u32,        // D / 4
    stride: u32,         // of a token in qkv and turned, in floats
    inverse_stride: u32, // of a token in inverses, in floats
    pairs: u32,          // half the channels that are turned
    halves: u32,         // 1: channel c pairs with c + pairs; 0: 2c with 2c + 1
    normed: u32,         // 1 if queries have a norm, 2 if keys have one, 3 if both
    eps: f32,
}

@group(0) @binding(6) var<storage, read> positions: array<u32>;               // [T]
@group(0) @binding(7) var<storage, read_write> turned_qkv: array<vec4<f32>>;  // [T, H + KV + KV, D]
@group(0) @binding(8) var<storage, read_write> inverses: array<f32>;          // [T, H + KV]: what the norms multiplied with

@compute @workgroup_size(64)
fn rope(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x / params.vectors;
    let vector = id.x % params.vectors;
    if (head >= params.heads + 2u * params.kv_heads) {
        return;
    }
    let row = id.z * params.stride + head * params.vectors * 4u;
    let kind = kind_of(head);
    let inverse = inverse_of(row, kind);
    turned_qkv[row / 4u + vector] = turned(row, vector, positions[id.z], inverse, kind);
    if (vector == 0u && !kind.is_value) {
        inverses[id.z * params.inverse_stride + head] = inverse;
    }
}
