// f32 activations to signed bytes, two each, with a scale for each block of 32, for integer dot products. One lane takes a
// block. Where the numbers come from is in source/.

@group(0) @binding(4) var<storage, read_write> y: array<u32>; // [T, K / 32, 20]: see operand/bytes.wgsl

@compute @workgroup_size(64)
fn quantize(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.blocks) {
        return;
    }
    var most = 0u;
    for (var j = 0u; j < 8u; j++) {
        most = max(most, most4(vector_at(id.z, id.x * 8u + j)));
    }
    let scale = scale_of(most);
    let o = id.z * params.y_stride + id.x * 20u;
    var sum = 0.0;
    for (var j = 0u; j < 8u; j++) {
        let bytes = bytes_of(vector_at(id.z, id.x * 8u + j), scale.inverse);
        y[o + j] = bytes.high;
        y[o + 8u + j] = bytes.low;
        sum += bytes.sum;
    }
    y[o + 16u] = bitcast<u32>(scale.scale);
    y[o + 17u] = bitcast<u32>(scale.scale * sum);
}
