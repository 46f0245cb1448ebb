// Between the projections and attention: the norm of each query and key head where the model has one, rotary position
// embedding of queries and keys, and keys and values into the cache. One lane takes four channels.

struct Params {
    heads: u32,     // H
    kv_heads: u32,  // KV
    context: u32,   // keys of a kv head that the cache has room for
    vectors: u32,   // D / 4
    qkv_stride: u32, // of a token in qkv, in floats
    q_stride: u32,  // of a token in q, in vec4
    pairs: u32,     // half the channels that are turned
    halves: u32,    // 1: channel c pairs with c + pairs; 0: 2c with 2c + 1
    normed: u32,    // 1 if queries have a norm, 2 if keys have one, 3 if both
    eps: f32,
}

@group(0) @binding(6) var<storage, read_write> q: array<vec4<f32>>; // [T, H, D]
@group(0) @binding(7) var<storage, read_write> k_cache: array<Kv4>; // [KV, context, D]
@group(0) @binding(8) var<storage, read_write> v_cache: array<Kv4>; // [KV, context, D]

@compute @workgroup_size(64)
fn rope_kv(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = params.vectors;
    let head = id.x / n;
    let vector = id.x % n;
    if (head >= params.heads + 2u * params.kv_heads) {
        return;
    }
    let token = id.z;
    let position = frame.position + token;
    let row = token * params.qkv_stride + head * n * 4u;
    let kind = kind_of(head);
    let inverse = inverse_of(row, kind);
    let y = turned(row, vector, position, inverse, kind);
    if (kind.is_query) {
        q[token * params.q_stride + head * n + vector] = y;
        return;
    }
    var most = 0u; // of the block that shares a scale: each lane finds it by itself
    if (KV_BLOCK > 1u) {
        let first = vector / KV_BLOCK * KV_BLOCK;
        for (var i = 0u; i < KV_BLOCK; i++) {
            most = max(most, kv_most(turned(row, first + i, position, inverse, kind)));
        }
    }
    let kv_head = (head - params.heads) % params.kv_heads;
    let i = (kv_head * params.context + position) * n + vector;
    if (kind.is_value) {
        put_value(i, y, most);
    } else {
        put_key(i, y, most);
    }
}
