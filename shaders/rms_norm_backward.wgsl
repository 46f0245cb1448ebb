// dx of y = x / sqrt(mean(x^2) + eps) * gain, one workgroup a row: with n = x * inverse,
// dx = (gain dy - n mean(gain dy n)) * inverse. The inverse is kept for rms_norm_dgain.wgsl.

struct Params {
    cols: u32,           // the true length of a row
    vectors: u32,        // vec4 a row; what lies beyond `cols` is zero
    stride: u32,         // of a token in x, dy and dx, in vec4
    inverse_stride: u32, // of a token in inverse, in floats
    adds: u32,           // 1: to what dx holds
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;        // [T, rows, cols]
@group(0) @binding(3) var<storage, read> gain: array<vec4<f32>>;     // [cols]
@group(0) @binding(4) var<storage, read> dy: array<vec4<f32>>;       // [T, rows, cols]
@group(0) @binding(5) var<storage, read_write> dx: array<vec4<f32>>; // [T, rows, cols]
@group(0) @binding(6) var<storage, read_write> inverses: array<f32>; // [T, rows]

@compute @workgroup_size(GROUP)
fn rms_norm_backward(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let row = group.z * params.stride + group.x * params.vectors;
    var sums = vec4<f32>(); // of x^2, of gain dy x
    for (var i = lanes.lane; i < params.vectors; i += GROUP) {
        let v = x[row + i];
        sums += vec4<f32>(dot(v, v), dot(gain[i] * dy[row + i], v), 0.0, 0.0);
    }
    sums = group_sum4(sums, lanes) / f32(params.cols);
    let inverse = 1.0 / sqrt(sums.x + params.eps);
    let mean = sums.y * inverse; // of gain dy n
    for (var i = lanes.lane; i < params.vectors; i += GROUP) {
        let d = (gain[i] * dy[row + i] - x[row + i] * (inverse * mean)) * inverse;
        if (params.adds != 0u) {
            dx[row + i] += d;
        } else {
            dx[row + i] = d;
        }
    }
    if (lanes.lane == 0u) {
        inverses[group.z * params.inverse_stride + group.x] = inverse;
    }
}
