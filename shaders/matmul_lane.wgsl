// y[t] = W x[t] for many tokens, for processors that emulate a GPU: one lane takes four rows of W and eight tokens,
// so that a block is decoded once for eight tokens and a token's x is loaded once for four rows.
// matmul.wgsl is the version for real GPUs.

const TOKENS: u32 = 8u;
const ROWS: u32 = 4u;

// [8 tokens, 4 rows]
struct Sums {
    t0: vec4<f32>, t1: vec4<f32>, t2: vec4<f32>, t3: vec4<f32>,
    t4: vec4<f32>, t5: vec4<f32>, t6: vec4<f32>, t7: vec4<f32>,
}

// Where the x of the eight tokens begins.
struct Starts {
    t0: u32, t1: u32, t2: u32, t3: u32,
    t4: u32, t5: u32, t6: u32, t7: u32,
}

// One token's x against four weights of each of four rows.
fn dots(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, i: u32) -> vec4<f32> {
    let v = x[i];
    return vec4<f32>(dot(a, v), dot(b, v), dot(c, v), dot(d, v));
}

fn step(s: Sums, at: Starts, k: u32, a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>) -> Sums {
    return Sums(
        s.t0 + dots(a, b, c, d, at.t0 + k), s.t1 + dots(a, b, c, d, at.t1 + k),
        s.t2 + dots(a, b, c, d, at.t2 + k), s.t3 + dots(a, b, c, d, at.t3 + k),
        s.t4 + dots(a, b, c, d, at.t4 + k), s.t5 + dots(a, b, c, d, at.t5 + k),
        s.t6 + dots(a, b, c, d, at.t6 + k), s.t7 + dots(a, b, c, d, at.t7 + k),
    );
}

fn store(token: u32, row: u32, sums: vec4<f32>) {
    if (token >= frame.tokens) {
        return;
    }
    let i = token * params.y_stride + params.first_row + row;
    y[i] = sums.x;
    if (row + 1u < params.rows) { y[i + 1u] = sums.y; }
    if (row + 2u < params.rows) { y[i + 2u] = sums.z; }
    if (row + 3u < params.rows) { y[i + 3u] = sums.w; }
}

@compute @workgroup_size(64)
fn matmul_lane(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = (group_index(group, groups) * 64u + lane) * ROWS;
    if (row >= params.rows) {
        return;
    }
    // tokens and rows past the end repeat the last ones; they are not stored
    let t = group.z * TOKENS;
    let end = frame.tokens - 1u;
    let stride = params.x_stride;
    let at = Starts(
        min(t, end) * stride, min(t + 1u, end) * stride, min(t + 2u, end) * stride, min(t + 3u, end) * stride,
        min(t + 4u, end) * stride, min(t + 5u, end) * stride, min(t + 6u, end) * stride, min(t + 7u, end) * stride,
    );
    let last = params.rows - 1u;
    let row0 = row * params.blocks;
    let row1 = min(row + 1u, last) * params.blocks;
    let row2 = min(row + 2u, last) * params.blocks;
    let row3 = min(row + 3u, last) * params.blocks;
    var s = Sums();
    for (var n = 0u; n < params.blocks; n++) {
        let a = decode(row0 + n);
        let b = decode(row1 + n);
        let c = decode(row2 + n);
        let d = decode(row3 + n);
        let k = n * 8u;
        s = step(s, at, k, a.w0, b.w0, c.w0, d.w0);
        s = step(s, at, k + 1u, a.w1, b.w1, c.w1, d.w1);
        s = step(s, at, k + 2u, a.w2, b.w2, c.w2, d.w2);
        s = step(s, at, k + 3u, a.w3, b.w3, c.w3, d.w3);
        s = step(s, at, k + 4u, a.w4, b.w4, c.w4, d.w4);
        s = step(s, at, k + 5u, a.w5, b.w5, c.w5, d.w5);
        s = step(s, at, k + 6u, a.w6, b.w6, c.w6, d.w6);
        s = step(s, at, k + 7u, a.w7, b.w7, c.w7, d.w7);
    }
    store(t, row, s.t0);
    store(t + 1u, row, s.t1);
    store(t + 2u, row, s.t2);
    store(t + 3u, row, s.t3);
    store(t + 4u, row, s.t4);
    store(t + 5u, row, s.t5);
    store(t + 6u, row, s.t6);
    store(t + 7u, row, s.t7);
}
