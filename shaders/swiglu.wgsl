// y = silu(gate) * up, where gates and ups are wanted for themselves or came from matrices of different formats
// (else finish/swiglu.wgsl does it).

struct Params {
    cols: u32,     // F
    x_stride: u32, // of a token in gate_up, in floats
    y_stride: u32, // of a token in y, in floats
    step: u32,     // from one gate to the next: 1, or 2 where gates and ups take turns
    up: u32,       // from a gate to its up: F, or 1
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> gate_up: array<f32>; // [T, 2, F], or [T, F, 2]
@group(0) @binding(3) var<storage, read_write> y: array<f32>; // [T, F]

@compute @workgroup_size(64)
fn swiglu(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.cols) {
        return;
    }
    let i = id.z * params.x_stride + id.x * params.step;
    y[id.z * params.y_stride + id.x] = swiglu2(vec4<f32>(gate_up[i], gate_up[i + params.up], 0.0, 0.0)).x;
}
