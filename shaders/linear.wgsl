// What the four kernels of y[t] = W x[t] take: matvec, matvec_lane, matmul and matmul_lane.

struct Params {
    rows: u32,      // N, of this shard
    blocks: u32,    // K / 32
    x_stride: u32,  // in vec4
    y_stride: u32,  // in floats
    first_row: u32, // where this shard's rows begin in y
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>; // [T, K]
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [T, N]
