// The gain's gradient: the sum over all rows of dy x / rms(x). One lane a channel, so that each sum has one owner.

struct Params {
    cols: u32,           // of a row
    rows_per_token: u32,
    row_stride: u32,     // of a row of a token, in floats
    stride: u32,         // of a token in x and dy, in floats
    inverse_stride: u32, // of a token in inverse, in floats
    adds: u32,           // 1: to what dgain holds
    first: u32,          // column of x and dy where a token's rows begin
    inverse_first: u32,  // the same in inverses
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;           // [T, rows, cols]
@group(0) @binding(3) var<storage, read> dy: array<f32>;          // [T, rows, cols]
@group(0) @binding(4) var<storage, read> inverses: array<f32>;    // [T, rows]
@group(0) @binding(5) var<storage, read_write> dgain: array<f32>; // [cols]

@compute @workgroup_size(64)
fn rms_norm_dgain(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.cols) {
        return;
    }
    var sum = 0.0;
    for (var token = 0u; token < frame.tokens; token++) {
        for (var row = 0u; row < params.rows_per_token; row++) {
            let i = token * params.stride + params.first + row * params.row_stride + id.x;
            sum += dy[i] * x[i] * inverses[token * params.inverse_stride + params.inverse_first + row];
        }
    }
    if (params.adds != 0u) {
        sum += dgain[id.x];
    }
    dgain[id.x] = sum;
}
