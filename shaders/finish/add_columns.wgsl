// Some columns of y += scale W x: what an adapter adds to its share of a fused matrix's results.

@group(0) @binding(8) var<storage, read_write> y: array<f32>; // [T, columns]

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    let v = biased(row, sums) * params.scale;
    for (var n = 0u; n < 4u; n++) {
        if (row + n < params.rows) {
            y[token * params.y_stride + params.y_first + (params.first_row + row + n) * params.y_step] += v[n];
        }
    }
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
}
