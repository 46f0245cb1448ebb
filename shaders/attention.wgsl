// Causal grouped-query attention: one workgroup for one token, one kv head, up to four of its query heads and a split of
// the keys: 64 keys at a time, one a lane; then the lanes share out the channels of the values.
// attention_tile.wgsl is the version for many tokens, attention_lane.wgsl and attention_token.wgsl are those for
// processors that emulate a GPU.

const MAX_VECTORS: u32 = 64u; // a head of 256

var<workgroup> query: array<vec4<f32>, 4u * MAX_VECTORS>; // [heads, D]
var<workgroup> weight: array<vec4<f32>, GROUP>;           // exp(score - most) of the 64 keys at hand, by head
var<workgroup> sums: array<vec4<f32>, GROUP>;

// Adds up the lanes' parts of one head and writes it.
fn put(head: u32, here: bool, sum: vec4<f32>, total: f32, most: f32, token: u32, split: u32, lane: u32) {
    let n = params.vectors;
    sums[lane] = sum;
    workgroupBarrier();
    if (here && lane < n) {
        var all = sums[lane];
        for (var p = 1u; p < GROUP / n; p++) {
            all += sums[p * n + lane];
        }
        if (is_whole()) {
            y[token * params.q_stride + head * n + lane] = all / total;
        } else {
            let i = part_at(token, head, split);
            parts[i + lane] = all;
            if (lane == 0u) {
                parts[i + n] = vec4<f32>(most, total, 0.0, 0.0);
            }
        }
    }
    workgroupBarrier();
}

@compute @workgroup_size(GROUP)
fn attention(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let lane = lanes.lane;
    let n = params.vectors;
    let fours = (params.group + 3u) / 4u; // workgroups that share a kv head's query heads
    let kv_head = group.x / fours;
    let first_head = group.x % fours * 4u;
    let heads = min(4u, params.group - first_head);
    let head = kv_head * params.group + first_head;
    let token = group.z;
    for (var i = lane; i < heads * n; i += GROUP) {
        query[i] = q[token * params.q_stride + head * n + i] * params.scale;
    }
    workgroupBarrier();

    // lane (part, channel): part p of the parts adds up keys p, p + parts, ... for its four channels
    let parts_of_keys = GROUP / n;
    let part = lane / n;
    let channel = lane % n;
    var most = vec4<f32>(MASKED); // of each head
    var total = vec4<f32>();
    var sum0 = vec4<f32>();
    var sum1 = vec4<f32>();
    var sum2 = vec4<f32>();
    var sum3 = vec4<f32>();
    let end = min(frame.position + token + 1u, (group.y + 1u) * params.split);
    for (var first = group.y * params.split; first < end; first += GROUP) {
        let key = first + lane;
        var score = vec4<f32>(MASKED);
        if (key < end) {
            let k_row = row_of(kv_head, key);
            score = vec4<f32>();
            for (var i = 0u; i < n; i++) {
                let k = key_at(k_row + i);
                score.x += dot(query[i], k);
                if (heads > 1u) { score.y += dot(query[n + i], k); }
                if (heads > 2u) { score.z += dot(query[2u * n + i], k); }
                if (heads > 3u) { score.w += dot(query[3u * n + i], k); }
            }
        }
        let new_most = max(most, group_max4(score, lanes));
        let p = select(vec4<f32>(), exp(score - new_most), key < end);
        weight[lane] = p;
        let shrink = exp(most - new_most);
        total = total * shrink + group_sum4(p, lanes); // its barriers also publish weight
        sum0 *= shrink.x;
        sum1 *= shrink.y;
        sum2 *= shrink.z;
        sum3 *= shrink.w;
        most = new_most;
        if (part < parts_of_keys) {
            let here = min(GROUP, end - first);
            for (var i = part; i < here; i += parts_of_keys) {
                let v = value_at(row_of(kv_head, first + i) + channel);
                let w = weight[i];
                sum0 += w.x * v;
                sum1 += w.y * v;
                sum2 += w.z * v;
                sum3 += w.w * v;
            }
        }
        workgroupBarrier(); // weight is written again
    }
    put(head, true, sum0, total.x, most.x, token, group.y, lane);
    put(head + 1u, heads > 1u, sum1, total.y, most.y, token, group.y, lane);
    put(head + 2u, heads > 2u, sum2, total.z, most.z, token, group.y, lane);
    put(head + 3u, heads > 3u, sum3, total.w, most.w, token, group.y, lane);
}
