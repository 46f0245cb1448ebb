// The queries' gradient (attention_dq.wgsl has the formula), for processors that emulate a GPU: a lane has one query.

@group(0) @binding(4) var<storage, read> y: array<vec4<f32>>;          // [T, H, D]
@group(0) @binding(5) var<storage, read> dy: array<vec4<f32>>;         // [T, H, D]
@group(0) @binding(6) var<storage, read> log_sums: array<f32>;         // [T, H]
@group(0) @binding(7) var<storage, read_write> means: array<f32>;      // [T, H]: dy y
@group(0) @binding(8) var<storage, read_write> dqkv: array<vec4<f32>>; // [T, H + KV + KV, D], of which queries are written

fn value_at(i: u32) -> vec4<f32> {
    return qkv[i];
}

fn dy_eight(i: u32) -> Eight {
    return Eight(dy[i], dy[i + 1u], dy[i + 2u], dy[i + 3u], dy[i + 4u], dy[i + 5u], dy[i + 6u], dy[i + 7u]);
}

// ds of four keys, from their scores and dp.
fn slopes4(s: vec4<f32>, dp: vec4<f32>, log_sum: f32, mean: f32, seen: vec4<bool>) -> vec4<f32> {
    let p = exp(clamp(s * params.scale - log_sum, vec4<f32>(-80.0), vec4<f32>()));
    return select(vec4<f32>(), p * (dp - mean) * params.scale, seen);
}

@compute @workgroup_size(8)
fn attention_dq_lane(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    let own = query_of(group, lane.index);
    if (!NEEDS_ALL_LANES && !own.is_own) {
        return;
    }
    let token = own.token;
    let head = own.head;
    let query = own.row;
    let at = own.at;
    let log_sum = log_sums[token * params.heads + head];
    let first = bounds[token].x; // key that this query sees
    let begin = first_key(group); // the same in all lanes, as is the end
    let end = past_keys(group);
    var mean = 0.0;
    for (var i = 0u; i < params.head_size / 4u; i++) {
        mean += dot(dy[at + i], y[at + i]);
    }
    for (var key = begin; key < end; key += 16u) {
        let k0 = heads4(key, end, params.heads + group.x);
        let k1 = heads4(key + 4u, end, params.heads + group.x);
        let k2 = heads4(key + 8u, end, params.heads + group.x);
        let k3 = heads4(key + 12u, end, params.heads + group.x);
        let values = params.kv_heads * (params.head_size / 4u); // from a key to its value
        var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>();
        var dp0 = vec4<f32>(); var dp1 = vec4<f32>(); var dp2 = vec4<f32>(); var dp3 = vec4<f32>();
        for (var i = 0u; i < params.head_size / 4u; i += 8u) {
            let q = own_at(query + i);
            s0 += key_dots(q, k0, i, lane);
            s1 += key_dots(q, k1, i, lane);
            s2 += key_dots(q, k2, i, lane);
            s3 += key_dots(q, k3, i, lane);
            let d = dy_eight(at + i);
            dp0 += value_dots(d, k0 + values, i, lane);
            dp1 += value_dots(d, k1 + values, i, lane);
            dp2 += value_dots(d, k2 + values, i, lane);
            dp3 += value_dots(d, k3 + values, i, lane);
        }
        let ds0 = slopes4(s0, dp0, log_sum, mean, seen4(key, first, token));
        let ds1 = slopes4(s1, dp1, log_sum, mean, seen4(key + 4u, first, token));
        let ds2 = slopes4(s2, dp2, log_sum, mean, seen4(key + 8u, first, token));
        let ds3 = slopes4(s3, dp3, log_sum, mean, seen4(key + 12u, first, token));
        for (var i = 0u; i < params.head_size / 4u; i += 8u) {
            var sum = sums_at_row(query + i, key == begin);
            sum = plus_keys(sum, ds0, k0, i, lane);
            sum = plus_keys(sum, ds1, k1, i, lane);
            sum = plus_keys(sum, ds2, k2, i, lane);
            sum = plus_keys(sum, ds3, k3, i, lane);
            if (own.is_own) {
                put_gradient(query + i, sum);
            }
        }
    }
    if (own.is_own) {
        means[token * params.heads + head] = mean;
    }
}
