// y = exp(x - max) / sum, one workgroup a row.

struct Params {
    cols: u32,
    stride: u32, // in floats
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;       // [T, N]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, N]

@compute @workgroup_size(GROUP)
fn softmax(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let row = group.z * params.stride;
    var most = -3.4e38;
    for (var i = lanes.lane; i < params.cols; i += GROUP) {
        most = max(most, x[row + i]);
    }
    most = group_max(most, lanes);
    var sum = 0.0;
    for (var i = lanes.lane; i < params.cols; i += GROUP) {
        let p = exp(x[row + i] - most);
        y[row + i] = p;
        sum += p;
    }
    sum = group_sum(sum, lanes);
    for (var i = lanes.lane; i < params.cols; i += GROUP) {
        y[row + i] /= sum;
    }
}
