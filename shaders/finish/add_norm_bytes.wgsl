// As finish/add_norm.wgsl, but what the next step wants is quantized. Workgroups have whole blocks of 32 rows.

@group(0) @binding(7) var<storage, read> gain: array<f32>;          // [N]
@group(0) @binding(8) var<storage, read_write> y: array<f32>;       // [N]
@group(0) @binding(9) var<storage, read_write> normed: array<u32>;  // [N / 32, 20]: see operand/bytes.wgsl
@group(0) @binding(10) var<storage, read_write> sums_of_squares: array<f32>; // [workgroups]

var<workgroup> slot_values: array<vec4<f32>, SLOTS>;
var<workgroup> slot_squares: array<f32, SLOTS>;

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    var v = biased(row, sums);
    var held = vec4<f32>();
    let i = params.first_row + row;
    for (var n = 0u; n < 4u; n++) {
        if (row + n < params.rows) {
            v[n] += y[i + n];
            y[i + n] = v[n];
            held[n] = v[n] * gain[i + n];
        }
    }
    slot_values[slot] = held;
    slot_squares[slot] = dot(v, v);
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
    workgroupBarrier();
    if (lane == 0u) {
        var sum = 0.0;
        for (var i = 0u; i < SLOTS; i++) {
            sum += slot_squares[i];
        }
        sums_of_squares[params.first_row / (SLOTS * 4u) + group] = sum;
    }
    // eight slots make a block
    let first = lane / 8u * 8u;
    if (first_row + first * 4u >= params.rows) {
        return;
    }
    var most = 0u;
    for (var i = 0u; i < 8u; i++) {
        most = max(most, most4(slot_values[first + i]));
    }
    let scale = scale_of(most);
    let o = (params.first_row + first_row + first * 4u) / 32u * 20u;
    let bytes = bytes_of(slot_values[lane], scale.inverse);
    normed[o + lane % 8u] = bytes.high;
    normed[o + 8u + lane % 8u] = bytes.low;
    if (lane % 8u == 0u) {
        var sum = bytes.sum;
        for (var i = 1u; i < 8u; i++) {
            sum += bytes_of(slot_values[first + i], scale.inverse).sum;
        }
        normed[o + 16u] = bitcast<u32>(scale.scale);
        normed[o + 17u] = bitcast<u32>(scale.scale * sum);
    }
}
