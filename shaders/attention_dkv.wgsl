// The gradients of a key and its value, from all queries that saw them: dk = sum of ds q, dv = sum of p dy, with ds as in
// attention_dq.wgsl, which runs before. One workgroup a key, so that each sum has one owner: a lane takes a query of each 64
// (every head that shares the key is one), then channels.

@group(0) @binding(4) var<storage, read> dy: array<f32>;         // [T, H, D]
@group(0) @binding(5) var<storage, read> log_sums: array<f32>;   // [T, H]
@group(0) @binding(6) var<storage, read> means: array<f32>;      // [T, H]
@group(0) @binding(7) var<storage, read_write> dqkv: array<f32>; // [T, H + KV + KV, D]: keys and values are written

var<workgroup> slopes: array<vec2<f32>, GROUP>; // ds and p, of 64 queries

@compute @workgroup_size(GROUP)
fn attention_dkv(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let token = group.z;
    let shared_by = params.heads / params.kv_heads;
    let key = key_row(token, group.x);
    let value = value_row(token, group.x);
    let queries = (bounds[token].y - token) * shared_by; // that see the key: the same in all lanes
    var dk: array<f32, CHANNELS>;
    var dv: array<f32, CHANNELS>;
    for (var begin = 0u; begin < queries; begin += GROUP) {
        let q = begin + lanes.lane;
        let seeing = token + q / shared_by;
        var slope = vec2<f32>();
        if (q < queries) {
            let head = group.x * shared_by + q % shared_by;
            let row = seeing * params.y_stride + head * params.head_size;
            var dp = 0.0;
            for (var c = 0u; c < params.head_size; c++) {
                dp += dy[row + c] * qkv[value + c];
            }
            let i = seeing * params.heads + head;
            let p = exp(min(score_of(query_row(seeing, head), key) - log_sums[i], 0.0));
            slope = vec2<f32>(p * (dp - means[i]) * params.scale, p);
        }
        slopes[lanes.lane] = slope;
        workgroupBarrier();
        for (var i = 0u; i < CHANNELS; i++) {
            let c = i * GROUP + lanes.lane;
            if (c < params.head_size) {
                for (var j = 0u; j < GROUP && begin + j < queries; j++) {
                    let other = token + (begin + j) / shared_by;
                    let head = group.x * shared_by + (begin + j) % shared_by;
                    dk[i] += slopes[j].x * qkv[query_row(other, head) + c];
                    dv[i] += slopes[j].y * dy[other * params.y_stride + head * params.head_size + c];
                }
            }
        }
        workgroupBarrier(); // before the slopes of the next queries
    }
    for (var i = 0u; i < CHANNELS; i++) {
        let c = i * GROUP + lanes.lane;
        if (c < params.head_size) {
            dqkv[key + c] = dk[i];
            dqkv[value + c] = dv[i];
        }
    }
}
