// The queries' gradient. With p the probabilities and dp = dy vᵀ: ds = p (dp - sum(p dp)) / sqrt(D), dq = ds k, and
// sum(p dp) = dy y, which is kept for the keys' turn. One workgroup a query: a lane takes a key of each 64, then channels.

@group(0) @binding(4) var<storage, read> y: array<f32>;             // [T, H, D]
@group(0) @binding(5) var<storage, read> dy: array<f32>;            // [T, H, D]
@group(0) @binding(6) var<storage, read> log_sums: array<f32>;      // [T, H]
@group(0) @binding(7) var<storage, read_write> means: array<f32>;   // [T, H]: dy y
@group(0) @binding(8) var<storage, read_write> dqkv: array<f32>;    // [T, H + KV + KV, D], of which queries are written

var<workgroup> slopes: array<f32, GROUP>; // ds, of 64 keys

@compute @workgroup_size(GROUP)
fn attention_dq(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let token = group.z;
    let kv_head = group.x / (params.heads / params.kv_heads);
    let query = query_row(token, group.x);
    let row = token * params.y_stride + group.x * params.head_size;
    let log_sum = log_sums[token * params.heads + group.x];
    var product = 0.0;
    for (var c = lanes.lane; c < params.head_size; c += GROUP) {
        product += dy[row + c] * y[row + c];
    }
    let mean = group_sum(product, lanes);
    var result: array<f32, CHANNELS>;
    for (var begin = bounds[token].x; begin <= token; begin += GROUP) { // the same in all lanes
        let key = begin + lanes.lane;
        var slope = 0.0;
        if (key <= token) {
            var dp = 0.0;
            for (var c = 0u; c < params.head_size; c++) {
                dp += dy[row + c] * qkv[value_row(key, kv_head) + c];
            }
            slope = exp(min(score_of(query, key_row(key, kv_head)) - log_sum, 0.0)) * (dp - mean) * params.scale;
        }
        slopes[lanes.lane] = slope;
        workgroupBarrier();
        for (var i = 0u; i < CHANNELS; i++) {
            let c = i * GROUP + lanes.lane;
            if (c < params.head_size) {
                for (var j = 0u; j < GROUP && begin + j <= token; j++) {
                    result[i] += slopes[j] * qkv[key_row(begin + j, kv_head) + c];
                }
            }
        }
        workgroupBarrier(); // before the slopes of the next keys
    }
    for (var i = 0u; i < CHANNELS; i++) {
        let c = i * GROUP + lanes.lane;
        if (c < params.head_size) {
            dqkv[query + c] = result[i];
        }
    }
    if (lanes.lane == 0u) {
        means[token * params.heads + group.x] = mean;
    }
}
