// RMSNorm: y = x / sqrt(mean(x^2) + eps) * gain. One workgroup a row.
// A token has `rows_per_token` rows of `cols` (one; or one a head for the QK norm).

struct Params {
    cols: u32,           // the true length of a row
    vectors: u32,        // vec4 a row; what lies beyond `cols` is zero
    rows_per_token: u32,
    x_stride: u32,       // of a token, in vec4
    y_stride: u32,       // of a token, in vec4
    last_only: u32,      // 1: norm the last token of the pass into row 0
    eps: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;       // [T, rows, cols]
@group(0) @binding(3) var<storage, read> gain: array<vec4<f32>>;    // [cols]
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>; // [T, rows, cols]

@compute @workgroup_size(GROUP)
fn rms_norm(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let token = select(group.z, frame.tokens - 1u, params.last_only == 1u);
    let x_row = token * params.x_stride + group.x * params.vectors;
    let y_row = group.z * params.y_stride + group.x * params.vectors;

    var squares = 0.0;
    for (var i = lanes.lane; i < params.vectors; i += GROUP) {
        let v = x[x_row + i];
        squares += dot(v, v);
    }
    let mean = group_sum(squares, lanes) / f32(params.cols);
    let scale = 1.0 / sqrt(mean + params.eps);
    for (var i = lanes.lane; i < params.vectors; i += GROUP) {
        y[y_row + i] = x[x_row + i] * scale * gain[i];
    }
}
