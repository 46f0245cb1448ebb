// Causal grouped-query attention, one workgroup for one head of one token, in one pass over the keys
// (online softmax): 64 keys at a time, one a lane; then the lanes share out the channels of the values.
// Serves decode (one token) and prefill (T tokens, each with its own causal bound).

const MAX_VECTORS: u32 = 64u; // a head of 256
const MASKED: f32 = -1e30;

struct Params {
    group: u32,      // query heads that share a kv head
    vectors: u32,    // D / 4
    kv_stride: u32,  // of a token in the cache, in vec4: KV * D / 4
    q_stride: u32,   // of a token in q and y, in vec4
    scale: f32,      // 1 / sqrt(D)
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;       // [T, H, D]
@group(0) @binding(3) var<storage, read> k_cache: array<Kv4>;       // [context, KV, D]
@group(0) @binding(4) var<storage, read> v_cache: array<Kv4>;       // [context, KV, D]
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>; // [T, H, D]

var<workgroup> query: array<vec4<f32>, MAX_VECTORS>;
var<workgroup> weight: array<f32, GROUP>;      // exp(score - max) of the 64 keys at hand
var<workgroup> shared_sum: array<vec4<f32>, GROUP>;

@compute @workgroup_size(GROUP)
fn attention(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let lane = lanes.lane;
    let n = params.vectors;
    let row = group.z * params.q_stride + group.x * n;
    let kv_row = group.x / params.group * n;
    let keys = frame.position + group.z + 1u;
    if (lane < n) {
        query[lane] = q[row + lane] * params.scale;
    }
    workgroupBarrier();

    // lane (part, channel): part p of the parts adds up keys p, p + parts, ... for its four channels
    let parts = GROUP / n;
    let part = lane / n;
    let channel = lane % n;
    var most = MASKED;
    var total = 0.0;
    var sum = vec4<f32>();
    for (var first = 0u; first < keys; first += GROUP) {
        let key = first + lane;
        var score = MASKED;
        if (key < keys) {
            let k_row = key * params.kv_stride + kv_row;
            score = 0.0;
            for (var i = 0u; i < n; i++) {
                score += dot(query[i], kv_unpack(k_cache[k_row + i]));
            }
        }
        let new_most = max(most, group_max(score, lanes));
        let p = select(0.0, exp(score - new_most), key < keys);
        weight[lane] = p;
        let shrink = exp(most - new_most);
        total = total * shrink + group_sum(p, lanes); // its barriers also publish weight
        sum *= shrink;
        most = new_most;
        if (part < parts) {
            let here = min(GROUP, keys - first);
            for (var i = part; i < here; i += parts) {
                sum += weight[i] * kv_unpack(v_cache[(first + i) * params.kv_stride + kv_row + channel]);
            }
        }
        workgroupBarrier(); // weight is written again
    }

    shared_sum[lane] = sum;
    workgroupBarrier();
    if (lane < n) {
        for (var p = 1u; p < parts; p++) {
            sum += shared_sum[p * n + lane];
        }
        y[row + lane] = sum / total;
    }
}
