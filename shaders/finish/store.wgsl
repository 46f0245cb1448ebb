// y = W x + bias. The finishes all define `finish`, which takes four results of neighbouring rows, and `finish_group`,
// which every lane of the workgroup calls after its last `finish`.

@group(0) @binding(8) var<storage, read_write> y: array<f32>; // [T, N]

fn finish(slot: u32, token: u32, row: u32, sums: vec4<f32>) {
    let v = biased(row, sums);
    let i = token * params.y_stride + params.first_row + row;
    if (row + 3u < params.rows) {
        y[i] = v.x;
        y[i + 1u] = v.y;
        y[i + 2u] = v.z;
        y[i + 3u] = v.w;
        return;
    }
    if (row < params.rows) { y[i] = v.x; }
    if (row + 1u < params.rows) { y[i + 1u] = v.y; }
    if (row + 2u < params.rows) { y[i + 2u] = v.z; }
}

fn finish_group(group: u32, first_row: u32, lane: u32) {
}
