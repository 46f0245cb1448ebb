// Causal grouped-query attention for processors that emulate a GPU: a lane has one query (a head of a token) and goes
// over the keys of a split, sixteen at a time; the eight lanes of a workgroup have queries of one kv head. Channels are
// taken by 32; the sums are named one by one, because arrays would not stay in registers.
// attention.wgsl is the version for real GPUs.

override CHUNKS: u32 = 8u; // of 32 channels, in a head of up to 256

struct Sums {
    c0: Eight, c1: Eight, c2: Eight, c3: Eight, c4: Eight, c5: Eight, c6: Eight, c7: Eight,
}

fn dot8(a: Eight, b: Eight) -> f32 {
    let sum = a.v0 * b.v0 + a.v1 * b.v1 + a.v2 * b.v2 + a.v3 * b.v3 + a.v4 * b.v4 + a.v5 * b.v5 + a.v6 * b.v6 + a.v7 * b.v7;
    return (sum.x + sum.y) + (sum.z + sum.w);
}

fn add8(a: Eight, p: f32, b: Eight) -> Eight {
    return Eight(
        a.v0 + p * b.v0, a.v1 + p * b.v1, a.v2 + p * b.v2, a.v3 + p * b.v3,
        a.v4 + p * b.v4, a.v5 + p * b.v5, a.v6 + p * b.v6, a.v7 + p * b.v7,
    );
}

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

fn put8(at: u32, i: u32, s: Eight, f: f32) {
    put(at, i, s.v0 * f);
    put(at, i + 1u, s.v1 * f);
    put(at, i + 2u, s.v2 * f);
    put(at, i + 3u, s.v3 * f);
    put(at, i + 4u, s.v4 * f);
    put(at, i + 5u, s.v5 * f);
    put(at, i + 6u, s.v6 * f);
    put(at, i + 7u, s.v7 * f);
}

fn times8(s: Eight, f: f32) -> Eight {
    return Eight(s.v0 * f, s.v1 * f, s.v2 * f, s.v3 * f, s.v4 * f, s.v5 * f, s.v6 * f, s.v7 * f);
}

// exp(score - most) of sixteen keys, and what the sums so far are multiplied with.
struct Weights {
    p0: vec4<f32>, p1: vec4<f32>, p2: vec4<f32>, p3: vec4<f32>,
    shrink: f32,
}

fn add16(sum: Eight, w: Weights, key: u32, end: u32, kv_head: u32, i: u32, lane: Lane) -> Eight {
    let a = add4(times8(sum, w.shrink), w.p0, key, end, kv_head, i, lane);
    let b = add4(a, w.p1, key + 4u, end, kv_head, i, lane);
    let c = add4(b, w.p2, key + 8u, end, kv_head, i, lane);
    return add4(c, w.p3, key + 12u, end, kv_head, i, lane);
}

fn most_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
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
    var sums: Sums;
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
        let w = Weights(p0, p1, p2, p3, shrink);
        sums.c0 = add16(sums.c0, w, key, end, group.x, 0u, lane);
        if (CHUNKS > 1u) { sums.c1 = add16(sums.c1, w, key, end, group.x, 8u, lane); }
        if (CHUNKS > 2u) { sums.c2 = add16(sums.c2, w, key, end, group.x, 16u, lane); }
        if (CHUNKS > 3u) { sums.c3 = add16(sums.c3, w, key, end, group.x, 24u, lane); }
        if (CHUNKS > 4u) { sums.c4 = add16(sums.c4, w, key, end, group.x, 32u, lane); }
        if (CHUNKS > 5u) { sums.c5 = add16(sums.c5, w, key, end, group.x, 40u, lane); }
        if (CHUNKS > 6u) { sums.c6 = add16(sums.c6, w, key, end, group.x, 48u, lane); }
        if (CHUNKS > 7u) { sums.c7 = add16(sums.c7, w, key, end, group.x, 56u, lane); }
    }
    if (!is_own) {
        return;
    }
    let f = select(1.0, 1.0 / total, is_whole());
    put8(at, 0u, sums.c0, f);
    if (CHUNKS > 1u) { put8(at, 8u, sums.c1, f); }
    if (CHUNKS > 2u) { put8(at, 16u, sums.c2, f); }
    if (CHUNKS > 3u) { put8(at, 24u, sums.c3, f); }
    if (CHUNKS > 4u) { put8(at, 32u, sums.c4, f); }
    if (CHUNKS > 5u) { put8(at, 40u, sums.c5, f); }
    if (CHUNKS > 6u) { put8(at, 48u, sums.c6, f); }
    if (CHUNKS > 7u) { put8(at, 56u, sums.c7, f); }
    if (!is_whole()) {
        parts[at + n] = vec4<f32>(most, total, 0.0, 0.0);
    }
}
