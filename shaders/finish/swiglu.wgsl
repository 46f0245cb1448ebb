// y = silu(gate) * up, where rows of W take turns: gate 0, up 0, gate 1, up 1, ..

@group(0) @binding(8) var<storage, read_write> y: array<f32>; // [T, N / 2]

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    let v = swiglu2(biased(row, sums));
    let i = token * params.y_stride + (params.first_row + row) / 2u;
    if (row < params.rows) { y[i] = v.x; }
    if (row + 2u < params.rows) { y[i + 1u] = v.y; }
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
}
