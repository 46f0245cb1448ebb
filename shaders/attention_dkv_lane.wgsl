// The gradients of a key and its value (attention_dkv.wgsl has the formula), for processors that emulate a GPU: a lane has
// one key, and goes over the queries of all heads that share it, eight at a time.

@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;         // [T, H, D]
@group(0) @binding(5) var<storage, read> log_sums: array<f32>;         // [T, H]
@group(0) @binding(6) var<storage, read> means: array<f32>;            // [T, H]
@group(0) @binding(7) var<storage, read_write> dqkv: array<vec4<f32>>; // [T, H + KV + KV, D]: keys and values are written

// The other factor of what belongs to values.
fn value_at(i: u32) -> vec4<f32> {
    return dy[i];
}

// Four queries: where they lie.
struct Queries {
    tokens: vec4<u32>,
    rows: vec4<u32>,   // in qkv
    dys: vec4<u32>,    // in dy
    places: vec4<u32>, // in log_sums and means
}

// Those from number `first` on of a kv head's; past the end the last is repeated.
fn queries4(first: u32, end: u32, kv_head: u32) -> Queries {
    let shared_by = params.heads / params.kv_heads;
    let n = params.head_size / 4u;
    let numbers = min(vec4<u32>(first, first + 1u, first + 2u, first + 3u), vec4<u32>(end - 1u));
    let tokens = numbers / shared_by;
    let heads = kv_head * shared_by + numbers % shared_by;
    return Queries(
        tokens, tokens * (params.qkv_stride / 4u) + heads * n, tokens * (params.y_stride / 4u) + heads * n,
        tokens * params.heads + heads,
    );
}

// p and ds of four queries, from their scores and dp.
struct Slopes {
    p: vec4<f32>,
    ds: vec4<f32>,
}

fn slopes_of(q: Queries, s: vec4<f32>, dp: vec4<f32>, seen: vec4<bool>) -> Slopes {
    let i = q.places;
    let log_sum = vec4<f32>(log_sums[i.x], log_sums[i.y], log_sums[i.z], log_sums[i.w]);
    let mean = vec4<f32>(means[i.x], means[i.y], means[i.z], means[i.w]);
    let p = select(vec4<f32>(), exp(clamp(s * params.scale - log_sum, vec4<f32>(-80.0), vec4<f32>())), seen);
    return Slopes(p, p * (dp - mean) * params.scale);
}

@compute @workgroup_size(8)
fn attention_dkv_lane(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    let last = frame.tokens - 1u;
    let is_own = group.z * 8u + lane.index <= last; // lanes past the end repeat the last key; they store nothing
    if (!NEEDS_ALL_LANES && !is_own) {
        return;
    }
    let token = min(group.z * 8u + lane.index, last);
    let shared_by = params.heads / params.kv_heads;
    let key = head_at(token, params.heads + group.x);
    let value = head_at(token, params.heads + params.kv_heads + group.x);
    let past = bounds[token].y; // the first token that is of another sequence
    let begin = group.z * 8u * shared_by; // the same in all lanes, as is the end
    let end = bounds[min(group.z * 8u + 7u, last)].y * shared_by;
    for (var number = begin; number < end; number += 8u) {
        let a = queries4(number, end, group.x);
        let b = queries4(number + 4u, end, group.x);
        var s0 = vec4<f32>(); var s1 = vec4<f32>();
        var dp0 = vec4<f32>(); var dp1 = vec4<f32>();
        for (var i = 0u; i < params.head_size / 4u; i += 8u) {
            let k = own_at(key + i);
            s0 += key_dots(k, a.rows, i, lane);
            s1 += key_dots(k, b.rows, i, lane);
            let v = own_at(value + i);
            dp0 += value_dots(v, a.dys, i, lane);
            dp1 += value_dots(v, b.dys, i, lane);
        }
        let inside_a = vec4<u32>(number, number + 1u, number + 2u, number + 3u) < vec4<u32>(end);
        let inside_b = vec4<u32>(number + 4u, number + 5u, number + 6u, number + 7u) < vec4<u32>(end);
        let own = vec4<u32>(token);
        let x = slopes_of(a, s0, dp0, inside_a & (a.tokens >= own) & (a.tokens < vec4<u32>(past)));
        let z = slopes_of(b, s1, dp1, inside_b & (b.tokens >= own) & (b.tokens < vec4<u32>(past)));
        for (var i = 0u; i < params.head_size / 4u; i += 8u) {
            let dk = plus_keys(sums_at_row(key + i, number == begin), x.ds, a.rows, i, lane);
            let dv = plus_values(sums_at_row(value + i, number == begin), x.p, a.dys, i, lane);
            let dk_all = plus_keys(dk, z.ds, b.rows, i, lane);
            let dv_all = plus_values(dv, z.p, b.dys, i, lane);
            if (is_own) {
                put_gradient(key + i, dk_all);
                put_gradient(value + i, dv_all);
            }
        }
    }
}
