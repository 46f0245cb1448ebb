// Attention over whole sequences that lie one after another, for training: what its forward and backward kernels share.
// A token sees its own sequence up to itself. Heads lie in qkv as the projection leaves them: queries, keys, values.

struct Params {
    heads: u32,      // H
    kv_heads: u32,   // KV
    head_size: u32,  // D, at most 256
    qkv_stride: u32, // of a token in qkv and dqkv, in floats
    y_stride: u32,   // of a token in y and dy, in floats
    scale: f32,      // 1 / sqrt(D)
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> bounds: array<vec2<u32>>; // [T]: first token of its sequence, first past it
@group(0) @binding(3) var<storage, read> qkv: array<f32>;          // [T, H + KV + KV, D], turned

const CHANNELS: u32 = 256u / GROUP; // of a head, that a lane owns at most

// Where a query's, a key's and a value's channels begin.
fn query_row(token: u32, head: u32) -> u32 {
    return token * params.qkv_stride + head * params.head_size;
}

fn key_row(token: u32, kv_head: u32) -> u32 {
    return query_row(token, params.heads + kv_head);
}

fn value_row(token: u32, kv_head: u32) -> u32 {
    return query_row(token, params.heads + params.kv_heads + kv_head);
}

fn score_of(query: u32, key: u32) -> f32 {
    var sum = 0.0;
    for (var c = 0u; c < params.head_size; c++) {
        sum += qkv[query + c] * qkv[key + c];
    }
    return sum * params.scale;
}
