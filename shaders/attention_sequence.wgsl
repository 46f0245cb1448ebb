// y = softmax(q kᵀ / sqrt(D)) v over whole sequences, in one pass over the keys. What the backward pass needs of it is
// kept: the logarithm of each softmax's sum. One workgroup a query: a lane takes a key of each 64, then channels of y.

@group(0) @binding(4) var<storage, read_write> y: array<f32>;        // [T, H, D]
@group(0) @binding(5) var<storage, read_write> log_sums: array<f32>; // [T, H]

var<workgroup> weights: array<f32, GROUP>; // exp(score - most), of 64 keys

@compute @workgroup_size(GROUP)
fn attention_sequence(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let token = group.z;
    let kv_head = group.x / (params.heads / params.kv_heads);
    let query = query_row(token, group.x);
    var most = -1e30;
    var sum = 0.0;
    var result: array<f32, CHANNELS>;
    for (var begin = bounds[token].x; begin <= token; begin += GROUP) { // the same in all lanes
        let key = begin + lanes.lane;
        var s = -1e30;
        if (key <= token) {
            s = score_of(query, key_row(key, kv_head));
        }
        let above = max(most, group_max(s, lanes));
        let shrink = exp(max(most - above, -80.0));
        let weight = select(0.0, exp(max(s - above, -80.0)), s > -1e30);
        most = above;
        weights[lanes.lane] = weight;
        sum = sum * shrink + group_sum(weight, lanes); // a barrier, too
        for (var i = 0u; i < CHANNELS; i++) {
            let c = i * GROUP + lanes.lane;
            result[i] *= shrink;
            if (c < params.head_size) {
                for (var j = 0u; j < GROUP && begin + j <= token; j++) {
                    result[i] += weights[j] * qkv[value_row(begin + j, kv_head) + c];
                }
            }
        }
        workgroupBarrier(); // before the weights of the next keys
    }
    for (var i = 0u; i < CHANNELS; i++) {
        let c = i * GROUP + lanes.lane;
        if (c < params.head_size) {
            y[token * params.y_stride + group.x * params.head_size + c] = result[i] / sum;
        }
    }
    if (lanes.lane == 0u) {
        log_sums[token * params.heads + group.x] = most + log(sum);
    }
}
