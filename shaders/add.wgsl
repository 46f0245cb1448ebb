// y = x + branch: the residual stream goes on, where what a branch adds to it is wanted for itself (else the finish of the
// matrix before does it). One lane a vector.

struct Params {
    vectors: u32, // vec4 of a token, and from one token to the next
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;       // [T, C]
@group(0) @binding(3) var<storage, read> branch: array<vec4<f32>>;  // [T, C]
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>; // [T, C]

@compute @workgroup_size(64)
fn add(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.vectors) {
        return;
    }
    let i = id.z * params.vectors + id.x;
    y[i] = x[i] + branch[i];
}
