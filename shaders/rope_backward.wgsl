// The gradient of a rotation turns back by the same angle. In place; one lane a pair of channels of a query or key head.

struct Params {
    heads: u32,     // that were turned: queries and keys
    head_size: u32, // D
    stride: u32,    // of a token in dqkv, in floats
    pairs: u32,     // half the channels that are turned
    halves: u32,    // 1: channel c pairs with c + pairs; 0: 2c with 2c + 1
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> angles: array<vec2<f32>>; // [context, pairs]: cos, sin
@group(0) @binding(3) var<storage, read> positions: array<u32>;    // [T]
@group(0) @binding(4) var<storage, read_write> dqkv: array<f32>;   // [T, H + KV + KV, D]

@compute @workgroup_size(64)
fn rope_backward(@builtin(global_invocation_id) id: vec3<u32>) {
    let head = id.x / params.pairs;
    let pair = id.x % params.pairs;
    if (head >= params.heads) {
        return;
    }
    let row = id.z * params.stride + head * params.head_size;
    let first = row + select(pair * 2u, pair, params.halves != 0u);
    let second = select(first + 1u, first + params.pairs, params.halves != 0u);
    let turn = angles[positions[id.z] * params.pairs + pair];
    let a = dqkv[first];
    let b = dqkv[second];
    dqkv[first] = a * turn.x + b * turn.y;
    dqkv[second] = b * turn.x - a * turn.y;
}
