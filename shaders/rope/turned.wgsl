// The norm of each query and key head, where the model has one, and rotary position embedding: for rope_kv.wgsl and
// rope.wgsl, whose params have the names that are used here.

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> qkv: array<f32>;           // [T, H + KV + KV, D]
@group(0) @binding(3) var<storage, read> angles: array<vec2<f32>>;  // [context, pairs]: cos, sin
@group(0) @binding(4) var<storage, read> q_gain: array<f32>;        // [D], or anything
@group(0) @binding(5) var<storage, read> k_gain: array<f32>;        // [D], or anything

// What a head is.
struct Kind {
    is_query: bool,
    is_value: bool,
    is_normed: bool,
}

fn kind_of(head: u32) -> Kind {
    let is_query = head < params.heads;
    let is_value = head >= params.heads + params.kv_heads;
    return Kind(is_query, is_value, !is_value && (params.normed & select(2u, 1u, is_query)) != 0u);
}

// What the norm multiplies the head that begins at `row` with, before the gain.
fn inverse_of(row: u32, kind: Kind) -> f32 {
    if (!kind.is_normed) {
        return 1.0;
    }
    var sum = 0.0;
    for (var c = 0u; c < params.vectors * 4u; c++) {
        sum += qkv[row + c] * qkv[row + c];
    }
    return inverseSqrt(sum / f32(params.vectors * 4u) + params.eps);
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
