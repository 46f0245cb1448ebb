// What the kernels of y[t] = W x[t] take: matvec, matvec_lane, matmul and matmul_lane. Beside this file they link
//   a format   (formats/): how a block of W is decoded,
//   an order   (order/):   where the blocks of a row lie,
//   an operand (operand/): how x is read, and the dot product of two blocks,
//   an input   (input/):   what x must still be multiplied with,
//   a finish   (finish/):  what becomes of the results.

struct Params {
    rows: u32,      // N, of this part of W
    blocks: u32,    // K / 32
    x_stride: u32,  // of a token in x, in the operand's elements
    y_stride: u32,  // of a token in y, in floats
    first_row: u32, // where this part's rows begin in y and in the bias
    biased: u32,    // 1 if there is a bias
    squares: u32,   // input/normed.wgsl: how many sums of squares the step before left
    width: f32,     // input/normed.wgsl: C, whose mean square it is
    eps: f32,       // input/normed.wgsl: of the RMSNorm
    skip: u32,      // rows of the weight's buffers that come before this part's
    y_first: u32,   // finish/add_columns.wgsl: the column of y that row 0 of W is added to
    y_step: u32,    // finish/add_columns.wgsl: from there to that of the next row
    scale: f32,     // finish/add_columns.wgsl
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(5) var<storage, read> bias: array<f32>; // [N], or anything if there is none

// Four results of one token, rows `row` and on, with their bias. Rows past the end give zeros.
fn biased(row: u32, sums: vec4<f32>) -> vec4<f32> {
    let inside = vec4<bool>(row < params.rows, row + 1u < params.rows, row + 2u < params.rows, row + 3u < params.rows);
    var v = select(vec4<f32>(), sums, inside);
    if (params.biased != 0u) {
        let i = params.first_row + row;
        let b = vec4<f32>(bias[i], bias[i + 1u], bias[i + 2u], bias[i + 3u]); // vectors are padded to whole blocks
        v += select(vec4<f32>(), b, inside);
    }
    return v;
}
