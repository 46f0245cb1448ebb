// Causal grouped-query attention of one token, or a few, for processors that emulate a GPU with subgroups of eight: one
// workgroup for a token, a kv head, up to four of its query heads and a split of the keys. Of eight keys a lane scores one;
// of 32 channels a lane adds up four. So all lanes are busy where attention_lane, whose lanes have a query each, leaves
// most without one. What all lanes want, one has and hands round. attention.wgsl is the version for real GPUs.

const KEYS: u32 = 512u;     // of a split, at most: TOKEN_KEYS of src/kernels/attention.rs
override QUERIES: u32 = 4u; // query heads of a workgroup

struct Lane {
    @builtin(subgroup_invocation_id) index: u32,
}

// Four channels of each query head.
struct Heads {
    h0: vec4<f32>, h1: vec4<f32>, h2: vec4<f32>, h3: vec4<f32>,
}

// Query heads from `row` on, this lane's vec4 of the eight from i on, or the last of the head.
fn own_queries(row: u32, i: u32, heads: u32, lane: Lane) -> Heads {
    let n = params.vectors;
    let at = row + min(i + lane.index, n - 1u);
    var x = Heads();
    x.h0 = q[at] * params.scale;
    if (QUERIES > 1u) { x.h1 = q[at + min(1u, heads - 1u) * n] * params.scale; }
    if (QUERIES > 2u) { x.h2 = q[at + min(2u, heads - 1u) * n] * params.scale; }
    if (QUERIES > 3u) { x.h3 = q[at + min(3u, heads - 1u) * n] * params.scale; }
    return x;
}

// What lane j has, for all lanes.
fn handed(x: Heads, j: u32) -> Heads {
    var y = Heads();
    y.h0 = subgroupShuffle(x.h0, j);
    if (QUERIES > 1u) { y.h1 = subgroupShuffle(x.h1, j); }
    if (QUERIES > 2u) { y.h2 = subgroupShuffle(x.h2, j); }
    if (QUERIES > 3u) { y.h3 = subgroupShuffle(x.h3, j); }
    return y;
}

// What four channels add to the score of one key: a component for each query head.
fn scores(x: Heads, k: vec4<f32>) -> vec4<f32> {
    var s = vec4<f32>(dot(x.h0, k), 0.0, 0.0, 0.0);
    if (QUERIES > 1u) { s.y = dot(x.h1, k); }
    if (QUERIES > 2u) { s.z = dot(x.h2, k); }
    if (QUERIES > 3u) { s.w = dot(x.h3, k); }
    return s;
}

// The sums with one more value, weighed with p: a component for each query head.
fn with_value(x: Heads, p: vec4<f32>, v: vec4<f32>) -> Heads {
    var y = x;
    y.h0 += p.x * v;
    if (QUERIES > 1u) { y.h1 += p.y * v; }
    if (QUERIES > 2u) { y.h2 += p.z * v; }
    if (QUERIES > 3u) { y.h3 += p.w * v; }
    return y;
}

fn put(head: u32, end: u32, i: u32, sum: vec4<f32>, most: f32, total: f32, token: u32, split: u32) {
    if (i >= params.vectors || head >= end) {
        return;
    }
    if (is_whole()) {
        y[token * params.q_stride + head * params.vectors + i] = sum / total;
        return;
    }
    let at = part_at(token, head, split);
    parts[at + i] = sum;
    if (i == 0u) {
        parts[at + params.vectors] = vec4<f32>(most, total, 0.0, 0.0);
    }
}

@compute @workgroup_size(8)
fn attention_token(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    let n = params.vectors;
    let fours = (params.group + 3u) / 4u; // workgroups that share a kv head's query heads
    let kv_head = group.x / fours;
    let head = kv_head * params.group + group.x % fours * 4u;
    let heads = min(4u, (kv_head + 1u) * params.group - head);
    let token = group.z;
    let row = token * params.q_stride + head * n;
    let first = group.y * params.split;
    let last = min(frame.position + token, first + (params.split - 1u)); // key of this token in this split
    if (last < first) { // uniform: the whole workgroup leaves
        return;
    }

    var weights: array<vec4<f32>, KEYS / 8u>; // this lane's key of each eight: its scores, then exp(score - most), by query head
    var most = vec4<f32>(MASKED);
    for (var key = first; key <= last; key += 32u) { // four eights at a time
        let a = row_of(kv_head, min(key + lane.index, last));
        let b = row_of(kv_head, min(key + lane.index + 8u, last));
        let c = row_of(kv_head, min(key + lane.index + 16u, last));
        let d = row_of(kv_head, min(key + lane.index + 24u, last));
        var s0 = vec4<f32>();
        var s1 = vec4<f32>();
        var s2 = vec4<f32>();
        var s3 = vec4<f32>();
        for (var i = 0u; i < n; i += 8u) {
            let own = own_queries(row, i, heads, lane);
            let here = min(n - i, 8u);
            for (var j = 0u; j < here; j++) {
                let x = handed(own, j);
                s0 += scores(x, key_at(a + i + j));
                s1 += scores(x, key_at(b + i + j));
                s2 += scores(x, key_at(c + i + j));
                s3 += scores(x, key_at(d + i + j));
            }
        }
        let at = (key - first) >> 3u;
        weights[at] = s0;
        weights[at + 1u] = s1;
        weights[at + 2u] = s2;
        weights[at + 3u] = s3;
        most = max(most, max(max(s0, s1), max(s2, s3))); // a key past the last repeats it
    }
    most = subgroupMax(most);
    var total = vec4<f32>();
    let eights = ((last - first) >> 3u) + 1u;
    for (var i = 0u; i < eights; i++) {
        let p = select(vec4<f32>(), exp(weights[i] - most), first + i * 8u + lane.index <= last);
        weights[i] = p;
        total += p;
    }
    total = subgroupAdd(total);

    for (var i = 0u; i < n; i += 8u) {
        let channels = min(i + lane.index, n - 1u);
        var sums = Heads();
        for (var e = 0u; e < eights; e++) {
            let p = weights[e];
            for (var j = 0u; j < 8u; j++) {
                let v = value_at(row_of(kv_head, min(first + e * 8u + j, last)) + channels);
                sums = with_value(sums, subgroupShuffle(p, j), v);
            }
        }
        let end = head + heads;
        let at = i + lane.index;
        put(head, end, at, sums.h0, most.x, total.x, token, group.y);
        if (QUERIES > 1u) { put(head + 1u, end, at, sums.h1, most.y, total.y, token, group.y); }
        if (QUERIES > 2u) { put(head + 2u, end, at, sums.h2, most.z, total.z, token, group.y); }
        if (QUERIES > 3u) { put(head + 3u, end, at, sums.h3, most.w, total.w, token, group.y); }
    }
}
