// dW = dyᵀ x: the backward pass of y = W x to W. One workgroup for 32 rows of W and 64 channels. It goes over the tokens,
// 32 at a time, in order: each element of dW has one owner, whose sum is the same in every run.

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
@group(0) @binding(4) var<storage, read_write> dw: array<vec4<f32>>; // [N, K]

const TILE: u32 = 32u; // tokens, and rows of W

var<workgroup> x_tile: array<vec4<f32>, TILE * 16u>; // [32 tokens, 64 channels]
var<workgroup> dy_tile: array<vec4<f32>, TILE * 8u>; // [32 tokens, 32 rows]

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

@compute @workgroup_size(64)
fn matmul_dw(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let tile = group_index(group, groups);
    let first_row = tile / params.columns * TILE;
    let first_vector = tile % params.columns * 16u;
    let rows = index >> 3u;            // four of them
    let channels = (index & 7u) * 2u;  // two vec4
    var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>(); // channels, row by row
    var t0 = vec4<f32>(); var t1 = vec4<f32>(); var t2 = vec4<f32>(); var t3 = vec4<f32>(); // the next four channels
    for (var token = 0u; token < frame.tokens; token += TILE) {
        for (var j = index; j < TILE * 16u; j += 64u) {
            let t = min(token + (j >> 4u), frame.tokens - 1u); // past the last one dy is zero
            x_tile[j] = x[t * params.x_stride + min(first_vector + (j & 15u), params.vectors - 1u)];
        }
        for (var j = index; j < TILE * 8u; j += 64u) {
            let row = first_row + (j & 7u) * 4u;
            let t = token + (j >> 3u);
            dy_tile[j] = vec4<f32>(dy_of(t, row), dy_of(t, row + 1u), dy_of(t, row + 2u), dy_of(t, row + 3u));
        }
        workgroupBarrier();
        for (var t = 0u; t < TILE; t++) {
            let d = dy_tile[t * 8u + rows];
            let a = x_tile[t * 16u + channels];
            let b = x_tile[t * 16u + channels + 1u];
            s0 += d.x * a; s1 += d.y * a; s2 += d.z * a; s3 += d.w * a;
            t0 += d.x * b; t1 += d.y * b; t2 += d.z * b; t3 += d.w * b;
        }
        workgroupBarrier();
    }
    let row = first_row + rows * 4u;
    let i = first_vector + channels;
    put_row(row, i, s0); put_row(row + 1u, i, s1); put_row(row + 2u, i, s2); put_row(row + 3u, i, s3);
    put_row(row, i + 1u, t0); put_row(row + 1u, i + 1u, t1); put_row(row + 2u, i + 1u, t2); put_row(row + 3u, i + 1u, t3);
}
