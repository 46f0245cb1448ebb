// Causal grouped-query attention for processors that emulate a GPU: a lane has one query (a head of a token) and goes
// over the keys of a split, sixteen at a time; the eight lanes of a workgroup have queries of one kv head. Channels are
// taken by 32, and the sums stay in memory between keys: as named variables they make attention a third faster, but lavapipe
// takes ten times as long to compile it.
// attention.wgsl is the version for real GPUs.

// Where the channels of key or value `key` of a kv head begin, from vector i on. Keys past the end repeat the last.
fn row_at(key: u32, end: u32, kv_head: u32, i: u32) -> u32 {
    return row_of(kv_head, min(key, end - 1u)) + i;
}

fn scores4(query: Eight, key: u32, end: u32, kv_head: u32, i: u32, lane: Lane) -> vec4<f32> {
    return vec4<f32>(
        dot8(query, keys_at(row_at(key, end, kv_head, i), lane)),
        dot8(query, keys_at(row_at(key + 1u, end, kv_head, i), lane)),
        dot8(query, keys_at(row_at(key + 2u, end, kv_head, i), lane)),
        dot8(query, keys_at(row_at(key + 3u, end, kv_head, i), lane)),
    );
}

fn add4(sum: Eight, p: vec4<f32>, key: u32, end: u32, kv_head: u32, i: u32, lane: Lane) -> Eight {
    let a = add8(sum, p.x, values_at(row_at(key, end, kv_head, i), lane));
    let b = add8(a, p.y, values_at(row_at(key + 1u, end, kv_head, i), lane));
    let c = add8(b, p.z, values_at(row_at(key + 2u, end, kv_head, i), lane));
    return add8(c, p.w, values_at(row_at(key + 3u, end, kv_head, i), lane));
}

// Vector i of the query, zero where the head ends inside the last eight.
fn query_at(row: u32, i: u32) -> vec4<f32> {
    return select(vec4<f32>(), q[row + min(i, params.vectors - 1u)] * params.scale, i < params.vectors);
}

fn queries_at(row: u32, i: u32) -> Eight {
    return Eight(
        query_at(row, i), query_at(row, i + 1u), query_at(row, i + 2u), query_at(row, i + 3u),
        query_at(row, i + 4u), query_at(row, i + 5u), query_at(row, i + 6u), query_at(row, i + 7u),
    );
}

// The sums of a query lie in y, or in the part of its split.
fn sum_at(at: u32, i: u32) -> vec4<f32> {
    let j = at + min(i, params.vectors - 1u);
    if (is_whole()) {
        return y[j];
    }
    return parts[j];
}

fn sums_at(at: u32, i: u32) -> Eight {
    return Eight(
        sum_at(at, i), sum_at(at, i + 1u), sum_at(at, i + 2u), sum_at(at, i + 3u),
        sum_at(at, i + 4u), sum_at(at, i + 5u), sum_at(at, i + 6u), sum_at(at, i + 7u),
    );
}

fn put(at: u32, i: u32, v: vec4<f32>) {
    if (i >= params.vectors) {
        return;
    }
    if (is_whole()) {
        y[at + i] = v;
    } else {
        parts[at + i] = v;
    }
}

fn put8(at: u32, i: u32, s: Eight) {
    put(at, i, s.v0);
    put(at, i + 1u, s.v1);
    put(at, i + 2u, s.v2);
    put(at, i + 3u, s.v3);
    put(at, i + 4u, s.v4);
    put(at, i + 5u, s.v5);
    put(at, i + 6u, s.v6);
    put(at, i + 7u, s.v7);
}

@compute @workgroup_size(8)
fn attention_lane(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    let n = params.vectors;
    let queries = frame.tokens * params.group;
    let own = group.z * 8u + lane.index;
    let is_own = own < queries; // lanes past the end repeat the last query; they store nothing
    if (!NEEDS_ALL_LANES && !is_own) {
        return;
    }
    let token = min(own, queries - 1u) / params.group;
    let head = group.x * params.group + min(own, queries - 1u) % params.group;
    let row = token * params.q_stride + head * n;
    let at = select(part_at(token, head, group.y), row, is_whole());
    let last = frame.position + token; // the last key that this query sees
    let last_of_group = frame.position + min(group.z * 8u + 7u, queries - 1u) / params.group;
    let first = group.y * params.split;
    let end = min(last_of_group, first + (params.split - 1u)) + 1u;
    var most = MASKED;
    var total = 0.0;
    for (var key = first; key < end; key += 16u) {
        var s0 = vec4<f32>();
        var s1 = vec4<f32>();
        var s2 = vec4<f32>();
        var s3 = vec4<f32>();
        for (var i = 0u; i < n; i += 8u) {
            let query = queries_at(row, i);
            s0 += scores4(query, key, end, group.x, i, lane);
            s1 += scores4(query, key + 4u, end, group.x, i, lane);
            s2 += scores4(query, key + 8u, end, group.x, i, lane);
            s3 += scores4(query, key + 12u, end, group.x, i, lane);
        }
        let in_order = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
        let limit = vec4<u32>(min(last, end - 1u));
        let masked = vec4<f32>(MASKED);
        s0 = select(masked, s0, in_order <= limit);
        s1 = select(masked, s1, in_order + 4u <= limit);
        s2 = select(masked, s2, in_order + 8u <= limit);
        s3 = select(masked, s3, in_order + 12u <= limit);
        let new_most = max(most, most_of(max(max(s0, s1), max(s2, s3))));
        // where all is masked so far, masked scores must not weigh exp(0)
        let p0 = select(vec4<f32>(), exp(s0 - new_most), in_order <= limit);
        let p1 = select(vec4<f32>(), exp(s1 - new_most), in_order + 4u <= limit);
        let p2 = select(vec4<f32>(), exp(s2 - new_most), in_order + 8u <= limit);
        let p3 = select(vec4<f32>(), exp(s3 - new_most), in_order + 12u <= limit);
        let shrink = exp(most - new_most);
        let p = p0 + p1 + p2 + p3;
        total = total * shrink + (p.x + p.y) + (p.z + p.w);
        most = new_most;
        for (var i = 0u; i < n; i += 8u) {
            var sum = Eight();
            if (key > first) {
                sum = times8(sums_at(at, i), shrink);
            }
            sum = add4(sum, p0, key, end, group.x, i, lane);
            sum = add4(sum, p1, key + 4u, end, group.x, i, lane);
            sum = add4(sum, p2, key + 8u, end, group.x, i, lane);
            sum = add4(sum, p3, key + 12u, end, group.x, i, lane);
            if (is_own) {
                put8(at, i, sum);
            }
        }
    }
    if (!is_own) {
        return;
    }
    if (is_whole()) {
        for (var i = 0u; i < n; i++) {
            y[at + i] /= total;
        }
    } else {
        parts[at + n] = vec4<f32>(most, total, 0.0, 0.0);
    }
}
