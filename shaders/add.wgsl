// y += x, in place: the residual connection.

struct Params {
    vectors: u32, // vec4 a row
    stride: u32,  // in vec4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;       // [T, C]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>; // [T, C]

@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.vectors) {
        return;
    }
    let i = id.z * params.stride + id.x;
    y[i] += x[i];
}
