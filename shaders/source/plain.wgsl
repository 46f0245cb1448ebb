// What quantize takes: numbers as they lie there.

struct Params {
    blocks: u32,   // of a row
    x_stride: u32, // of a token in x, in vec4
    y_stride: u32, // of a token in y, in words
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>; // [T, K]

fn vector_at(token: u32, i: u32) -> vec4<f32> {
    return x[token * params.x_stride + i];
}
