// The gradients of gate and up, from that of y = silu(gate) * up. With s = 1 / (1 + e^-gate):
// dgate = dy up s (1 + gate (1 - s)), dup = dy gate s.

struct Params {
    cols: u32,           // F
    gate_up_stride: u32, // of a token in gate_up and dgate_up, in floats
    dy_stride: u32,      // of a token in dy, in floats
    step: u32,           // from one gate to the next: 1, or 2 where gates and ups take turns
    up: u32,             // from a gate to its up: F, or 1
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> gate_up: array<f32>;        // [T, 2, F], or [T, F, 2]
@group(0) @binding(3) var<storage, read> dy: array<f32>;             // [T, F]
@group(0) @binding(4) var<storage, read_write> dgate_up: array<f32>; // as gate_up

@compute @workgroup_size(64)
fn swiglu_backward(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.cols) {
        return;
    }
    let i = id.z * params.gate_up_stride + id.x * params.step;
    let gate = gate_up[i];
    let s = 1.0 / (1.0 + exp(min(-gate, 80.0))); // beyond 80 exp would leave f32
    let d = dy[id.z * params.dy_stride + id.x] * s;
    dgate_up[i] = d * gate_up[i + params.up] * (1.0 + gate * (1.0 - s));
    dgate_up[i + params.up] = d * gate;
}
