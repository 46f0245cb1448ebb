// What the kernels of dW = dyᵀ x take: matmul_dw and matmul_dw_lane.

struct Params {
    rows: u32,       // N
    vectors: u32,    // vec4 of a row that count: K / 4, rounded up
    columns: u32,    // workgroups along a row
    dy_stride: u32,  // of a token in dy, in floats
    x_stride: u32,   // of a token in x, in vec4
    dw_stride: u32,  // of a row of dw, in vec4
    adds: u32,       // 1: to what dw holds
    dy_first: u32,   // the column of dy that row 0 of W gave
    dy_step: u32,    // from there to that of the next row
    scale: f32,      // what W x was multiplied with
    first_row: u32,  // of dw, that is row 0 of W
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> dy: array<f32>;             // [T, N]
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;        // [T, K]
@group(0) @binding(5) var<storage, read_write> dw: array<vec4<f32>>; // [N, K]

// dy of one row of W; zero past the last row and the last token.
fn dy_of(token: u32, row: u32) -> f32 {
    let column = params.dy_first + min(row, params.rows - 1u) * params.dy_step;
    let i = min(token, frame.tokens - 1u) * params.dy_stride + column;
    return select(0.0, dy[i], row < params.rows && token < frame.tokens);
}

fn put_row(row: u32, i: u32, sum: vec4<f32>) {
    if (row >= params.rows || i >= params.vectors) {
        return;
    }
    let at = (params.first_row + row) * params.dw_stride + i;
    if (params.adds != 0u) {
        dw[at] += sum * params.scale;
    } else {
        dw[at] = sum * params.scale;
    }
}
