// y += W x + bias: the residual connection.

@group(0) @binding(8) var<storage, read_write> y: array<f32>; // [T, N]

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    let v = biased(row, sums);
    let i = token * params.y_stride + params.first_row + row;
    if (row < params.rows) { y[i] += v.x; }
    if (row + 1u < params.rows) { y[i + 1u] += v.y; }
    if (row + 2u < params.rows) { y[i + 2u] += v.z; }
    if (row + 3u < params.rows) { y[i + 3u] += v.w; }
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
}
