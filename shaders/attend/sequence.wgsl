// Attention over whole sequences on real GPUs: what its kernels share. attend/sequence_lane.wgsl is the version for
// processors that emulate a GPU.

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
