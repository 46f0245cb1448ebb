// y[t] += bias, in place.

struct Params {
    vectors: u32,  // vec4 a row
    y_stride: u32, // in vec4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> bias: array<vec4<f32>>;    // [N]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>; // [T, N]

@compute @workgroup_size(64)
fn add_bias(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.vectors) {
        return;
    }
    y[id.z * params.y_stride + id.x] += bias[id.x];
}
