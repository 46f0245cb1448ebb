// y += W x + bias for one token, and what the next step wants of y: y times the gain of its norm, and the sum of squares
// of this workgroup's rows (input/normed.wgsl adds them up). So the norm takes no dispatch of its own.

@group(0) @binding(7) var<storage, read> gain: array<f32>;          // [N]
@group(0) @binding(8) var<storage, read_write> y: array<f32>;       // [N]
@group(0) @binding(9) var<storage, read_write> normed: array<f32>;  // [N]
@group(0) @binding(10) var<storage, read_write> sums_of_squares: array<f32>; // [workgroups]

var<workgroup> slot_squares: array<f32, SLOTS>;

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    var v = biased(row, sums);
    let i = params.first_row + row;
    for (var n = 0u; n < 4u; n++) {
        if (row + n < params.rows) {
            v[n] += y[i + n];
            y[i + n] = v[n];
            normed[i + n] = v[n] * gain[i + n];
        }
    }
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
}
