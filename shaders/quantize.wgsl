// f32 activations to signed bytes with a scale for each block of 32, for integer dot products. One lane takes a block.

struct Params {
    blocks: u32,   // of a row
    x_stride: u32, // of a token in x, in vec4
    y_stride: u32, // of a token in y, in vec4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;       // [T, K]
@group(0) @binding(3) var<storage, read_write> y: array<vec4<u32>>; // [T, K / 32, 3]: see operand/q8.wgsl

@compute @workgroup_size(64)
fn quantize(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.blocks) {
        return;
    }
    let i = id.z * params.x_stride + id.x * 8u;
    var most = 0.0;
    for (var j = 0u; j < 8u; j++) {
        most = max(most, most4(x[i + j]));
    }
    let scale = scale_of(most);
    var low = vec4<u32>();
    var high = vec4<u32>();
    var sum = vec4<i32>();
    for (var j = 0u; j < 4u; j++) {
        let a = quantize4(x[i + j], scale.inverse);
        let b = quantize4(x[i + 4u + j], scale.inverse);
        low[j] = pack4xI8(a);
        high[j] = pack4xI8(b);
        sum += a + b;
    }
    let o = id.z * params.y_stride + id.x * 3u;
    y[o] = low;
    y[o + 1u] = high;
    let total = f32(sum.x + sum.y + sum.z + sum.w);
    y[o + 2u] = bitcast<vec4<u32>>(vec4<f32>(scale.scale, scale.scale * total, 0.0, 0.0));
}
