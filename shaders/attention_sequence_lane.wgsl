// y = softmax(q kᵀ / sqrt(D)) v over whole sequences, for processors that emulate a GPU: a lane has one query.
// attention_sequence.wgsl is the version for real GPUs.

@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>;  // [T, H, D]
@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>; // [T, H]

fn value_at(i: u32) -> vec4<f32> {
    return qkv[i];
}

fn sums_of(at: u32) -> Eight {
    return Eight(y[at], y[at + 1u], y[at + 2u], y[at + 3u], y[at + 4u], y[at + 5u], y[at + 6u], y[at + 7u]);
}

fn put_sums(at: u32, s: Eight) {
    y[at] = s.v0; y[at + 1u] = s.v1; y[at + 2u] = s.v2; y[at + 3u] = s.v3;
    y[at + 4u] = s.v4; y[at + 5u] = s.v5; y[at + 6u] = s.v6; y[at + 7u] = s.v7;
}

@compute @workgroup_size(8)
fn attention_sequence_lane(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    let own = query_of(group, lane.index);
    if (!NEEDS_ALL_LANES && !own.is_own) {
        return;
    }
    let token = own.token;
    let head = own.head;
    let query = own.row;
    let at = own.at;
    let first = bounds[token].x; // key that this query sees
    let begin = first_key(group); // the same in all lanes, as is the end
    let end = past_keys(group);
    let masked = vec4<f32>(-1e30);
    var most = -1e30;
    var total = 0.0;
    for (var key = begin; key < end; key += 16u) {
        let k0 = heads4(key, end, params.heads + group.x);
        let k1 = heads4(key + 4u, end, params.heads + group.x);
        let k2 = heads4(key + 8u, end, params.heads + group.x);
        let k3 = heads4(key + 12u, end, params.heads + group.x);
        var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>();
        for (var i = 0u; i < params.head_size / 4u; i += 8u) {
            let q = own_at(query + i);
            s0 += key_dots(q, k0, i, lane);
            s1 += key_dots(q, k1, i, lane);
            s2 += key_dots(q, k2, i, lane);
            s3 += key_dots(q, k3, i, lane);
        }
        let seen0 = seen4(key, first, token);
        let seen1 = seen4(key + 4u, first, token);
        let seen2 = seen4(key + 8u, first, token);
        let seen3 = seen4(key + 12u, first, token);
        s0 = select(masked, s0 * params.scale, seen0);
        s1 = select(masked, s1 * params.scale, seen1);
        s2 = select(masked, s2 * params.scale, seen2);
        s3 = select(masked, s3 * params.scale, seen3);
        let above = max(most, most_of(max(max(s0, s1), max(s2, s3))));
        let shrink = exp(max(most - above, -80.0));
        // where all is masked so far, masked scores must not weigh exp(0)
        let p0 = select(vec4<f32>(), exp(max(s0 - above, vec4<f32>(-80.0))), seen0);
        let p1 = select(vec4<f32>(), exp(max(s1 - above, vec4<f32>(-80.0))), seen1);
        let p2 = select(vec4<f32>(), exp(max(s2 - above, vec4<f32>(-80.0))), seen2);
        let p3 = select(vec4<f32>(), exp(max(s3 - above, vec4<f32>(-80.0))), seen3);
        let p = p0 + p1 + p2 + p3;
        total = total * shrink + (p.x + p.y) + (p.z + p.w);
        most = above;
        let values = params.kv_heads * (params.head_size / 4u); // from a key to its value
        for (var i = 0u; i < params.head_size / 4u; i += 8u) {
            var sum = Eight();
            if (key > begin) {
                sum = times8(sums_of(at + i), shrink);
            }
            sum = plus_values(sum, p0, k0 + values, i, lane);
            sum = plus_values(sum, p1, k1 + values, i, lane);
            sum = plus_values(sum, p2, k2 + values, i, lane);
            sum = plus_values(sum, p3, k3 + values, i, lane);
            if (own.is_own) {
                put_sums(at + i, sum);
            }
        }
    }
    if (own.is_own) {
        for (var i = 0u; i < params.head_size / 4u; i++) {
            y[at + i] /= total;
        }
        log_sums[token * params.heads + head] = most + log(total);
    }
}
