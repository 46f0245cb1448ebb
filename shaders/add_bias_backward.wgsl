// The bias' gradient: the sum of dy over the tokens. One lane a channel, so that each sum has one owner.

struct Params {
    cols: u32,   // N
    stride: u32, // of a token in dy, in floats
    adds: u32,   // 1: to what dbias holds
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> dy: array<f32>;          // [T, N]
@group(0) @binding(3) var<storage, read_write> dbias: array<f32>; // [N]

@compute @workgroup_size(64)
fn add_bias_backward(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.cols) {
        return;
    }
    var sum = 0.0;
    for (var token = 0u; token < frame.tokens; token++) {
        sum += dy[token * params.stride + id.x];
    }
    if (params.adds != 0u) {
        sum += dbias[id.x];
    }
    dbias[id.x] = sum;
}
