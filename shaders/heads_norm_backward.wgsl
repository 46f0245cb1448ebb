// The gradient of the norms of query and key heads (QK norm), in place: dqkv comes as the gradient of the normed heads and
// becomes that of qkv. With n = x inverse: dx = (gain dy - n mean(gain dy n)) inverse. One workgroup a head; heads without
// a norm, and values, stay. The gains' own gradients (rms_norm_dgain.wgsl) are taken before.

struct Params {
    heads: u32,          // H
    kv_heads: u32,       // KV
    head_size: u32,      // D
    stride: u32,         // of a token in qkv and dqkv, in floats
    inverse_stride: u32, // of a token in inverses, in floats
    normed: u32,         // 1 if queries have a norm, 2 if keys have one, 3 if both
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> qkv: array<f32>;        // [T, H + KV + KV, D], as the projection left it
@group(0) @binding(3) var<storage, read> inverses: array<f32>;   // [T, H + KV]
@group(0) @binding(4) var<storage, read> q_gain: array<f32>;     // [D], or anything
@group(0) @binding(5) var<storage, read> k_gain: array<f32>;     // [D], or anything
@group(0) @binding(6) var<storage, read_write> dqkv: array<f32>; // [T, H + KV + KV, D]

fn gain_of(is_query: bool, c: u32) -> f32 {
    return select(k_gain[c], q_gain[c], is_query);
}

@compute @workgroup_size(GROUP)
fn heads_norm_backward(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let head = group.x;
    let is_query = head < params.heads;
    if ((params.normed & select(2u, 1u, is_query)) == 0u) { // the whole workgroup leaves
        return;
    }
    let row = group.z * params.stride + head * params.head_size;
    let inverse = inverses[group.z * params.inverse_stride + head];
    var sum = 0.0; // of gain dy n
    for (var c = lanes.lane; c < params.head_size; c += GROUP) {
        sum += gain_of(is_query, c) * dqkv[row + c] * qkv[row + c] * inverse;
    }
    let mean = group_sum(sum, lanes) / f32(params.head_size);
    for (var c = lanes.lane; c < params.head_size; c += GROUP) {
        dqkv[row + c] = (gain_of(is_query, c) * dqkv[row + c] - qkv[row + c] * inverse * mean) * inverse;
    }
}
