// y = silu(gate) * up, where silu(g) = g / (1 + exp(-g)).

struct Params {
    vectors: u32, // vec4 a row
    stride: u32,  // in vec4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> gate: array<vec4<f32>>;    // [T, F]
@group(0) @binding(3) var<storage, read> up: array<vec4<f32>>;      // [T, F]
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>; // [T, F]

@compute @workgroup_size(64)
fn swiglu(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.vectors) {
        return;
    }
    let i = id.z * params.stride + id.x;
    let g = gate[i];
    // exp overflows beyond 88 and some compilers drop infinities; silu(-80) is zero to f32 anyway
    y[i] = g / (1.0 + exp(min(-g, vec4<f32>(80.0)))) * up[i];
}
