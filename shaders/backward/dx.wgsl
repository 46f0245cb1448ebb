// What the kernels of dx = dy W take: matmul_dx and matmul_dx_lane.

struct Params {
    rows: u32,      // N, of this part of W
    blocks: u32,    // K / 32
    first_row: u32, // of this part
    dy_stride: u32, // of a token in dy, in floats
    dx_stride: u32, // of a token in dx, in vec4
    adds: u32,      // 1: to what dx holds
    skip: u32,      // rows of the buffers that come before this part's
    dy_first: u32,  // the column of dy that row 0 of W gave
    dy_step: u32,   // from there to that of the next row
    scale: f32,     // what W x was multiplied with
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> dy: array<f32>;             // [T, N]
@group(0) @binding(6) var<storage, read_write> dx: array<vec4<f32>>; // [T, K]

// dy of one row of W; zero past the last row and the last token.
fn dy_at(token: u32, row: u32) -> f32 {
    let column = params.dy_first + (params.first_row + min(row, params.rows - 1u)) * params.dy_step;
    let i = min(token, frame.tokens - 1u) * params.dy_stride + column;
    return select(0.0, dy[i], row < params.rows && token < frame.tokens);
}

fn put(token: u32, i: u32, sum: vec4<f32>) {
    if (token >= frame.tokens || i >= params.blocks * 8u) {
        return;
    }
    let at = token * params.dx_stride + i;
    if (params.adds != 0u) {
        dx[at] += sum * params.scale;
    } else {
        dx[at] = sum * params.scale;
    }
}
