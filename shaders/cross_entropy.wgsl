// The loss of each token from its logits, which come in shards of the vocabulary: minus the log probability of its label.
// One workgroup a token. From shard to shard it keeps the largest logit so far, the sum of exp(logit - largest) and the
// label's logit; the loss is right after the last shard.

struct Params {
    cols: u32,   // logits of this shard
    first: u32,  // id of its first
    stride: u32, // of a token in logits, in floats
    opens: u32,  // 1: the first shard
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> logits: array<f32>;           // [T, cols]
@group(0) @binding(3) var<storage, read> labels: array<u32>;           // [T]
@group(0) @binding(4) var<storage, read_write> seen: array<vec4<f32>>; // [T]: largest, sum, the label's, loss

const IGNORED: u32 = 0xffffffffu;
const INFINITE: u32 = 0x7f800000u;

@compute @workgroup_size(GROUP)
fn cross_entropy(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let token = group.z;
    let row = token * params.stride;
    var before = seen[token];
    if (params.opens != 0u) {
        before = vec4<f32>(-1e30, 0.0, 0.0, 0.0);
    }
    var most = before.x;
    for (var i = lanes.lane; i < params.cols; i += GROUP) {
        most = max(most, logits[row + i]);
    }
    most = group_max(most, lanes);
    var sum = 0.0;
    for (var i = lanes.lane; i < params.cols; i += GROUP) {
        // a logit that is not finite makes the loss infinite; by bits, as a maximum may drop NaN
        let exponent = bitcast<u32>(logits[row + i]) & INFINITE;
        sum += select(exp(max(logits[row + i] - most, -80.0)), bitcast<f32>(exponent), exponent == INFINITE);
    }
    sum = group_sum(sum, lanes) + before.y * exp(max(before.x - most, -80.0));
    if (lanes.lane == 0u) {
        let label = labels[token];
        var at_label = before.z;
        if (label - params.first < params.cols) { // wraps to a large number below the shard
            at_label = logits[row + label - params.first];
        }
        let loss = select(most + log(sum) - at_label, 0.0, label == IGNORED);
        seen[token] = vec4<f32>(most, sum, at_label, loss);
    }
}
