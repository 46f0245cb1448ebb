// As finish/swiglu.wgsl, quantized: the 64 rows of a workgroup are 32 gates and ups, which make one block.

@group(0) @binding(8) var<storage, read_write> y: array<u32>; // [T, N / 64, 20]: see operand/bytes.wgsl

var<workgroup> slot_values: array<vec2<f32>, SLOTS>;

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    slot_values[slot] = swiglu2(biased(row, sums)); // rows past the end are zeros
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
    workgroupBarrier();
    if (lane >= 8u || first_row >= params.rows) {
        return;
    }
    var most = 0u;
    for (var i = 0u; i < SLOTS; i += 2u) {
        most = max(most, most4(vec4<f32>(slot_values[i], slot_values[i + 1u])));
    }
    let scale = scale_of(most);
    let o = (params.first_row + first_row) / 64u * 20u;
    let bytes = bytes_of(vec4<f32>(slot_values[2u * lane], slot_values[2u * lane + 1u]), scale.inverse);
    y[o + lane] = bytes.high;
    y[o + 8u + lane] = bytes.low;
    if (lane == 0u) {
        var sum = bytes.sum;
        for (var i = 1u; i < 8u; i++) {
            sum += bytes_of(vec4<f32>(slot_values[2u * i], slot_values[2u * i + 1u]), scale.inverse).sum;
        }
        y[o + 16u] = bitcast<u32>(scale.scale);
        y[o + 17u] = bitcast<u32>(scale.scale * sum);
    }
}
