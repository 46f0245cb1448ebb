// What the optimizers' kernels share: where the rows of a parameter lie, and the numbers of a step.

struct Params {
    rows: u32,    // of the parameter
    vectors: u32, // vec4 of a row
    first: u32,   // where its row 0 lies in the buffers, in vec4
    stride: u32,  // of a row, in vec4
    decays: u32,  // 1: weights are drawn towards zero
}

// Of one step; the same for all parameters.
struct Rates {
    rate: f32,    // learning rate
    clip: f32,    // what gradients are multiplied with
    decay: f32,
    beta1: f32,   // SGD: momentum
    beta2: f32,
    eps: f32,
    lacks1: f32,  // 1 - beta1^step: what the mean lacks after so few steps
    lacks2: f32,  // 1 - beta2^step
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> rates: array<Rates, 1>;
@group(0) @binding(3) var<storage, read> gradient: array<vec4<f32>>;   // [rows, cols]
@group(0) @binding(4) var<storage, read_write> w: array<vec4<f32>>;    // [rows, cols]

// Where the i-th vec4 of the parameter lies.
fn place_of(i: u32) -> u32 {
    return params.first + i / params.vectors * params.stride + i % params.vectors;
}

// The weights after decay, which is none of the gradient's business.
fn decayed(w: vec4<f32>) -> vec4<f32> {
    return w * (1.0 - rates[0].rate * rates[0].decay * f32(params.decays));
}
