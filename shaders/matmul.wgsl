// y[t] = W x[t] for many tokens: tiles of 64 rows by 64 (or 32) tokens, 8 x 8 lanes with 8 rows by 8 (or 4) tokens each.
// A tile of W is decoded once into shared memory, one block of 32 along K at a time.
// matmul_lane.wgsl is the version for processors that emulate a GPU.

override TOKENS: u32 = 64u; // of a tile: 64, or 32 where there are no more
const ROWS: u32 = 64u;

// Both tiles have eight vec4 a row. Which of them lies where is turned by the row (XOR), so that lanes that read the same k
// of different rows meet different banks, without padding that would take more than 16 KiB.
var<workgroup> w_tile: array<vec4<f32>, ROWS * 8u>; // [64 rows, 32 along K]
var<workgroup> x_tile: array<vec4<f32>, 64u * 8u>;  // [64 tokens, 32 along K]

fn w_index(row: u32, k: u32) -> u32 {
    return row * 8u + (k ^ ((row >> 2u) & 7u));
}

fn x_index(token: u32, k: u32) -> u32 {
    return token * 8u + (k ^ (token & 7u));
}

fn dots(a: vec4<f32>, b: vec4<f32>, c: vec4<f32>, d: vec4<f32>, v: vec4<f32>) -> vec4<f32> {
    return vec4<f32>(dot(a, v), dot(b, v), dot(c, v), dot(d, v));
}

fn put(token: u32, row: u32, low: vec4<f32>, high: vec4<f32>) {
    if (token < frame.tokens) {
        finish(0u, token, row, low);
        finish(0u, token, row + 32u, high);
    }
}

@compute @workgroup_size(64)
fn matmul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let first_row = group_index(group, groups) * ROWS;
    if (first_row >= params.rows) { // uniform: the whole workgroup leaves
        return;
    }
    let first_token = group.z * TOKENS;
    let own_first = first_block(min(first_row + index, params.rows - 1u));
    let own_token = min(first_token + index, frame.tokens - 1u);
    let row = (index & 7u) * 4u; // this lane's rows: four from here on, and four from 32 further
    let token = index >> 3u;     // this lane's tokens: every eighth
    var low0 = vec4<f32>(); var low1 = vec4<f32>(); var low2 = vec4<f32>(); var low3 = vec4<f32>();
    var low4 = vec4<f32>(); var low5 = vec4<f32>(); var low6 = vec4<f32>(); var low7 = vec4<f32>();
    var high0 = vec4<f32>(); var high1 = vec4<f32>(); var high2 = vec4<f32>(); var high3 = vec4<f32>();
    var high4 = vec4<f32>(); var high5 = vec4<f32>(); var high6 = vec4<f32>(); var high7 = vec4<f32>();

    for (var b = 0u; b < params.blocks; b++) {
        let w = decode(own_first + b * BLOCK_STEP);
        w_tile[w_index(index, 0u)] = w.w0 * w.scale.x + w.offset;
        w_tile[w_index(index, 1u)] = w.w1 * w.scale.x + w.offset;
        w_tile[w_index(index, 2u)] = w.w2 * w.scale.x + w.offset;
        w_tile[w_index(index, 3u)] = w.w3 * w.scale.x + w.offset;
        w_tile[w_index(index, 4u)] = w.w4 * w.scale.y + w.offset;
        w_tile[w_index(index, 5u)] = w.w5 * w.scale.y + w.offset;
        w_tile[w_index(index, 6u)] = w.w6 * w.scale.y + w.offset;
        w_tile[w_index(index, 7u)] = w.w7 * w.scale.y + w.offset;
        if (index < TOKENS) {
            let i = own_token * params.x_stride + b * 8u;
            for (var k = 0u; k < 8u; k++) {
                x_tile[x_index(index, k)] = x[i + k];
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            let a0 = w_tile[w_index(row, k)];
            let a1 = w_tile[w_index(row + 1u, k)];
            let a2 = w_tile[w_index(row + 2u, k)];
            let a3 = w_tile[w_index(row + 3u, k)];
            let b0 = w_tile[w_index(row + 32u, k)];
            let b1 = w_tile[w_index(row + 33u, k)];
            let b2 = w_tile[w_index(row + 34u, k)];
            let b3 = w_tile[w_index(row + 35u, k)];
            let x0 = x_tile[x_index(token, k)];
            let x1 = x_tile[x_index(token + 8u, k)];
            let x2 = x_tile[x_index(token + 16u, k)];
            let x3 = x_tile[x_index(token + 24u, k)];
            low0 += dots(a0, a1, a2, a3, x0);
            low1 += dots(a0, a1, a2, a3, x1);
            low2 += dots(a0, a1, a2, a3, x2);
            low3 += dots(a0, a1, a2, a3, x3);
            high0 += dots(b0, b1, b2, b3, x0);
            high1 += dots(b0, b1, b2, b3, x1);
            high2 += dots(b0, b1, b2, b3, x2);
            high3 += dots(b0, b1, b2, b3, x3);
            if (TOKENS > 32u) {
                let x4 = x_tile[x_index(token + 32u, k)];
                let x5 = x_tile[x_index(token + 40u, k)];
                let x6 = x_tile[x_index(token + 48u, k)];
                let x7 = x_tile[x_index(token + 56u, k)];
                low4 += dots(a0, a1, a2, a3, x4);
                low5 += dots(a0, a1, a2, a3, x5);
                low6 += dots(a0, a1, a2, a3, x6);
                low7 += dots(a0, a1, a2, a3, x7);
                high4 += dots(b0, b1, b2, b3, x4);
                high5 += dots(b0, b1, b2, b3, x5);
                high6 += dots(b0, b1, b2, b3, x6);
                high7 += dots(b0, b1, b2, b3, x7);
            }
        }
        workgroupBarrier();
    }
    let t = first_token + token;
    put(t, first_row + row, low0, high0);
    put(t + 8u, first_row + row, low1, high1);
    put(t + 16u, first_row + row, low2, high2);
    put(t + 24u, first_row + row, low3, high3);
    if (TOKENS > 32u) {
        put(t + 32u, first_row + row, low4, high4);
        put(t + 40u, first_row + row, low5, high5);
        put(t + 48u, first_row + row, low6, high6);
        put(t + 56u, first_row + row, low7, high7);
    }
}
