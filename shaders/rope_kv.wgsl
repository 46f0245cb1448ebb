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

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> qkv: array<f32>;           // [T, H + KV + KV, D]
@group(0) @binding(3) var<storage, read> angles: array<vec2<f32>>;  // [context, pairs]: cos, sin
@group(0) @binding(4) var<storage, read> q_gain: array<f32>;        // [D], or anything
@group(0) @binding(5) var<storage, read> k_gain: array<f32>;        // [D], or anything
@group(0) @binding(6) var<storage, read_write> q: array<vec4<f32>>; // [T, H, D]
@group(0) @binding(7) var<storage, read_write> k_cache: array<Kv4>; // [KV, context, D]
@group(0) @binding(8) var<storage, read_write> v_cache: array<Kv4>; // [KV, context, D]

// What a head is.
struct Kind {
    is_query: bool,
    is_value: bool,
    is_normed: bool,
}

// Channel c of the head that begins at `row`, normed.
fn channel(row: u32, c: u32, inverse: f32, kind: Kind) -> f32 {
    let v = qkv[row + c];
    if (!kind.is_normed) {
        return v;
    }
    return v * inverse * select(k_gain[c], q_gain[c], kind.is_query);
}

// Four channels of a head as they go into attention: normed and turned, but values as they are.
fn turned(row: u32, vector: u32, position: u32, inverse: f32, kind: Kind) -> vec4<f32> {
    var y = vec4<f32>();
    for (var i = 0u; i < 4u; i++) {
        let c = vector * 4u + i;
        let v = channel(row, c, inverse, kind);
        y[i] = v;
        if (!kind.is_value && c < params.pairs * 2u) {
            var pair = c >> 1u;
            var partner = c ^ 1u;
            var is_first = (c & 1u) == 0u;
            if (params.halves != 0u) {
                is_first = c < params.pairs;
                pair = select(c - params.pairs, c, is_first);
                partner = select(pair, c + params.pairs, is_first);
            }
            let turn = angles[position * params.pairs + pair];
            let other = channel(row, partner, inverse, kind);
            y[i] = v * turn.x + select(other, -other, is_first) * turn.y;
        }
    }
    return y;
}

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
    let is_query = head < params.heads;
    let is_value = head >= params.heads + params.kv_heads;
    let kind = Kind(is_query, is_value, !is_value && (params.normed & select(2u, 1u, is_query)) != 0u);
    var inverse = 1.0;
    if (kind.is_normed) {
        var sum = 0.0;
        for (var c = 0u; c < n * 4u; c++) {
            sum += qkv[row + c] * qkv[row + c];
        }
        inverse = inverseSqrt(sum / f32(n * 4u) + params.eps);
    }
    let y = turned(row, vector, position, inverse, kind);
    if (is_query) {
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
    if (is_value) {
        put_value(i, y, most);
    } else {
        put_key(i, y, most);
    }
}
