// Causal grouped-query attention for many tokens: one workgroup for 32 queries of one kv head (a token's query heads follow
// one another) and a split of the keys, 32 keys at a time. 8 x 8 lanes score four queries by four keys each; then a pair of
// lanes takes a query's row to weights; then every lane adds up four queries by four channels of each 32. So a key or value
// is fetched once for 32 queries. attention.wgsl is the version for a few tokens, attention_lane.wgsl that for processors.

override CHUNKS: u32 = 8u; // of 32 channels, in a head of up to 256
const TILE: u32 = 32u;     // queries, keys, channels

// All tiles have eight vec4 a row. In `fetched` they are turned by the row (XOR), so that lanes that read the same vec4 of
// different rows meet different banks.
var<workgroup> queries: array<vec4<f32>, TILE * 8u>; // [32 queries, 32 channels]
var<workgroup> fetched: array<vec4<f32>, TILE * 8u>; // [32 keys, 32 channels] of keys, then of values
var<workgroup> weights: array<vec4<f32>, TILE * 8u>; // [32 queries, 32 keys] scores, then exp(score - most)
var<workgroup> shrinks: array<f32, TILE>;            // what the sums of a query so far are multiplied with; at the end, most
var<workgroup> totals: array<f32, TILE * 2u>;        // by lane

fn fetched_index(row: u32, c: u32) -> u32 {
    return row * 8u + (c ^ ((row >> 2u) & 7u));
}

fn dots(q: vec4<f32>, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(dot(q, a), dot(q, b), dot(q, c), dot(q, d));
}

fn weighed(p: vec4<f32>, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> vec4<f32> {
    return p.x * a + p.y * b + p.z * c + p.w * d;
}

@compute @workgroup_size(64)
fn attention_tile(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let n = params.vectors;
    let kv_head = group.x;
    let first_query = group.z * TILE;
    let last_query = frame.tokens * params.group - 1u; // queries past the end repeat it; they are not stored
    let first_key = group.y * params.split;
    let last_key = frame.position + min(first_query + TILE - 1u, last_query) / params.group; // that any query here sees
    let end = min(last_key, first_key + (params.split - 1u)) + 1u;
    if (first_key >= end) { // uniform: the whole workgroup leaves
        return;
    }
    let row = (index >> 3u) * 4u; // this lane's four queries
    let column = index & 7u;      // its four keys, then its four channels of 32
    let pair = index >> 1u;       // the query whose row it takes to weights, 16 keys of it
    let limit = frame.position + min(first_query + pair, last_query) / params.group; // the last key that this query sees
    var most = MASKED;
    var total = 0.0;
    var sums: array<vec4<f32>, 32>; // [chunks, 4 queries] of four channels
    for (var key = first_key; key < end; key += TILE) {
        var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>();
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            for (var i = index; i < TILE * 8u; i += 64u) {
                let c = chunk * 8u + (i & 7u);
                let query = min(first_query + (i >> 3u), last_query);
                let head = kv_head * params.group + query % params.group;
                let k_row = row_of(kv_head, min(key + (i >> 3u), end - 1u));
                let here = c < n; // the last chunk may be part of one
                let q_at = query / params.group * params.q_stride + head * n + min(c, n - 1u);
                queries[i] = select(vec4<f32>(), q[q_at] * params.scale, here);
                fetched[fetched_index(i >> 3u, i & 7u)] = select(vec4<f32>(), key_at(k_row + min(c, n - 1u)), here);
            }
            workgroupBarrier();
            for (var c = 0u; c < 8u; c++) {
                let k0 = fetched[fetched_index(column * 4u, c)];
                let k1 = fetched[fetched_index(column * 4u + 1u, c)];
                let k2 = fetched[fetched_index(column * 4u + 2u, c)];
                let k3 = fetched[fetched_index(column * 4u + 3u, c)];
                s0 += dots(queries[row * 8u + c], k0, k1, k2, k3);
                s1 += dots(queries[row * 8u + 8u + c], k0, k1, k2, k3);
                s2 += dots(queries[row * 8u + 16u + c], k0, k1, k2, k3);
                s3 += dots(queries[row * 8u + 24u + c], k0, k1, k2, k3);
            }
            workgroupBarrier();
        }
        weights[row * 8u + column] = s0;
        weights[row * 8u + 8u + column] = s1;
        weights[row * 8u + 16u + column] = s2;
        weights[row * 8u + 24u + column] = s3;
        workgroupBarrier();

        let seen = vec4<u32>(min(limit, end - 1u));
        let four = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
        var row_most = vec4<f32>(MASKED);
        for (var i = 0u; i < 8u; i++) {
            row_most = max(row_most, select(vec4<f32>(MASKED), weights[pair * 8u + i], four + 4u * i <= seen));
        }
        let new_most = max(most, max(max(row_most.x, row_most.y), max(row_most.z, row_most.w)));
        workgroupBarrier(); // both lanes of a pair have read the row
        let own = (index & 1u) * 4u;
        var row_total = vec4<f32>();
        for (var i = own; i < own + 4u; i++) {
            // where all is masked so far, masked scores must not weigh exp(0)
            let p = select(vec4<f32>(), exp(weights[pair * 8u + i] - new_most), four + 4u * i <= seen);
            weights[pair * 8u + i] = p;
            row_total += p;
        }
        let shrink = exp(most - new_most);
        total = total * shrink + (row_total.x + row_total.y) + (row_total.z + row_total.w);
        most = new_most;
        shrinks[pair] = shrink; // both lanes of a pair write the same
        workgroupBarrier();

        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            for (var i = index; i < TILE * 8u; i += 64u) {
                let v_row = row_of(kv_head, min(key + (i >> 3u), end - 1u));
                fetched[i] = value_at(v_row + min(chunk * 8u + (i & 7u), n - 1u));
            }
            workgroupBarrier();
            var sum0 = sums[chunk * 4u] * shrinks[row];
            var sum1 = sums[chunk * 4u + 1u] * shrinks[row + 1u];
            var sum2 = sums[chunk * 4u + 2u] * shrinks[row + 2u];
            var sum3 = sums[chunk * 4u + 3u] * shrinks[row + 3u];
            for (var k = 0u; k < 8u; k++) {
                let v0 = fetched[k * 32u + column];
                let v1 = fetched[k * 32u + 8u + column];
                let v2 = fetched[k * 32u + 16u + column];
                let v3 = fetched[k * 32u + 24u + column];
                sum0 += weighed(weights[row * 8u + k], v0, v1, v2, v3);
                sum1 += weighed(weights[row * 8u + 8u + k], v0, v1, v2, v3);
                sum2 += weighed(weights[row * 8u + 16u + k], v0, v1, v2, v3);
                sum3 += weighed(weights[row * 8u + 24u + k], v0, v1, v2, v3);
            }
            sums[chunk * 4u] = sum0;
            sums[chunk * 4u + 1u] = sum1;
            sums[chunk * 4u + 2u] = sum2;
            sums[chunk * 4u + 3u] = sum3;
            workgroupBarrier();
        }
    }

    totals[index] = total;
    shrinks[pair] = most; // both lanes of a pair write the same
    workgroupBarrier();
    for (var i = 0u; i < 4u; i++) {
        let query = first_query + row + i;
        if (query > last_query) {
            return;
        }
        let token = query / params.group;
        let head = kv_head * params.group + query % params.group;
        let all = totals[(row + i) * 2u] + totals[(row + i) * 2u + 1u];
        let part = part_at(token, head, group.y);
        for (var chunk = 0u; chunk < CHUNKS; chunk++) {
            let c = chunk * 8u + column;
            if (c >= n) {
                continue;
            }
            if (is_whole()) {
                y[token * params.q_stride + head * n + c] = sums[chunk * 4u + i] / all;
            } else {
                parts[part + c] = sums[chunk * 4u + i];
            }
        }
        if (!is_whole() && column == 0u) {
            parts[part + n] = vec4<f32>(shrinks[row + i], all, 0.0, 0.0);
        }
    }
}
