// What quantize takes: what attention gave, joined on the way where the keys were split.

struct Params {
    blocks: u32,   // of a row
    x_stride: u32, // of a token in x, in vec4
    y_stride: u32, // of a token in y, in words
    heads: u32,    // H
    vectors: u32,  // D / 4
    split: u32,    // keys of a part
    splits: u32,   // that the parts have room for
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;     // [T, H, D], where the keys were not split
@group(0) @binding(3) var<storage, read> parts: array<vec4<f32>>; // [T, H, splits, D / 4 + 1]: sums; largest score, total

fn vector_at(token: u32, i: u32) -> vec4<f32> {
    if (frame.position + frame.tokens <= params.split || i >= params.heads * params.vectors) {
        return x[token * params.x_stride + i];
    }
    return joined(token, i / params.vectors, i % params.vectors);
}
