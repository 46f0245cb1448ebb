// y[t] = W x[t] for many tokens, for processors that emulate a GPU: one lane a row of W and eight tokens,
// so that a block is decoded once for eight of them. matmul.wgsl is the version for real GPUs.

const TOKENS: u32 = 8u;

struct Params {
    rows: u32,      // N, of this shard
    blocks: u32,    // K / 32
    x_stride: u32,  // in vec4
    y_stride: u32,  // in floats
    first_row: u32, // where this shard's rows begin in y
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>; // [T, K]
@group(0) @binding(4) var<storage, read_write> y: array<f32>; // [T, N]

fn block_dot(w: Block, i: u32) -> vec4<f32> {
    return w.w0 * x[i] + w.w1 * x[i + 1u] + w.w2 * x[i + 2u] + w.w3 * x[i + 3u]
        + w.w4 * x[i + 4u] + w.w5 * x[i + 5u] + w.w6 * x[i + 6u] + w.w7 * x[i + 7u];
}

fn store(token: u32, row: u32, sum: vec4<f32>) {
    if (token < frame.tokens) {
        y[token * params.y_stride + params.first_row + row] = sum.x + sum.y + sum.z + sum.w;
    }
}

@compute @workgroup_size(64)
fn matmul_lane(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_index(group, groups) * 64u + lane;
    if (row >= params.rows) {
        return;
    }
    // tokens past the end repeat the last one; they are not stored
    let t = group.z * TOKENS;
    let last = frame.tokens - 1u;
    let x0 = min(t, last) * params.x_stride;
    let x1 = min(t + 1u, last) * params.x_stride;
    let x2 = min(t + 2u, last) * params.x_stride;
    let x3 = min(t + 3u, last) * params.x_stride;
    let x4 = min(t + 4u, last) * params.x_stride;
    let x5 = min(t + 5u, last) * params.x_stride;
    let x6 = min(t + 6u, last) * params.x_stride;
    let x7 = min(t + 7u, last) * params.x_stride;

    let first = row * params.blocks;
    var sum0 = vec4<f32>();
    var sum1 = vec4<f32>();
    var sum2 = vec4<f32>();
    var sum3 = vec4<f32>();
    var sum4 = vec4<f32>();
    var sum5 = vec4<f32>();
    var sum6 = vec4<f32>();
    var sum7 = vec4<f32>();
    for (var b = 0u; b < params.blocks; b++) {
        let w = decode(first + b);
        let i = b * 8u;
        sum0 += block_dot(w, x0 + i);
        sum1 += block_dot(w, x1 + i);
        sum2 += block_dot(w, x2 + i);
        sum3 += block_dot(w, x3 + i);
        sum4 += block_dot(w, x4 + i);
        sum5 += block_dot(w, x5 + i);
        sum6 += block_dot(w, x6 + i);
        sum7 += block_dot(w, x7 + i);
    }
    store(t, row, sum0);
    store(t + 1u, row, sum1);
    store(t + 2u, row, sum2);
    store(t + 3u, row, sum3);
    store(t + 4u, row, sum4);
    store(t + 5u, row, sum5);
    store(t + 6u, row, sum6);
    store(t + 7u, row, sum7);
}
