// y = residual + W x + bias: the residual connection where the stream before it is kept.

@group(0) @binding(7) var<storage, read> residual: array<f32>; // [T, N]
@group(0) @binding(8) var<storage, read_write> y: array<f32>;  // [T, N]

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    let v = biased(row, sums);
    let i = token * params.y_stride + params.first_row + row;
    for (var n = 0u; n < 4u; n++) {
        if (row + n < params.rows) {
            y[i + n] = residual[i + n] + v[n];
        }
    }
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
}
