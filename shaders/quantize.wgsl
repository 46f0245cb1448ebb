// f32 activations to signed bytes, two each, with a scale for each block of 32, for integer dot products. One lane takes a block.

struct Params {
    blocks: u32,   // of a row
    x_stride: u32, // of a token in x, in vec4
    y_stride: u32, // of a token in y, in words
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;       // [T, K]
@group(0) @binding(3) var<storage, read_write> y: array<u32>;       // [T, K / 32, 20]: see operand/bytes.wgsl

@compute @workgroup_size(64)
fn quantize(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.blocks) {
        return;
    }
    let i = id.z * params.x_stride + id.x * 8u;
    var most = 0u;
    for (var j = 0u; j < 8u; j++) {
        most = max(most, most4(x[i + j]));
    }
    let scale = scale_of(most);
    let o = id.z * params.y_stride + id.x * 20u;
    var sum = 0.0;
    for (var j = 0u; j < 8u; j++) {
        let bytes = bytes_of(x[i + j], scale.inverse);
        y[o + j] = bytes.high;
        y[o + 8u + j] = bytes.low;
        sum += bytes.sum;
    }
    y[o + 16u] = bitcast<u32>(scale.scale);
    y[o + 17u] = bitcast<u32>(scale.scale * sum);
}
