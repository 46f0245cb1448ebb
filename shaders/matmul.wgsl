// y[t] = W x[t] for many tokens: tiles of 32 rows by 32 tokens, 8 x 8 lanes with 4 x 4 results each.
// A tile of W is decoded once into shared memory, one block of 32 along K at a time.
// matmul_lane.wgsl is the version for processors that emulate a GPU.

const TILE: u32 = 32u;
const PITCH: u32 = 9u; // vec4 a shared row: 8, and one so that rows start in different banks

var<workgroup> w_tile: array<vec4<f32>, TILE * PITCH>; // [32 rows, 32 along K]
var<workgroup> x_tile: array<vec4<f32>, TILE * PITCH>; // [32 tokens, 32 along K]

fn store(token: u32, row: u32, sums: vec4<f32>) {
    if (token >= frame.tokens) {
        return;
    }
    for (var i = 0u; i < 4u; i++) {
        if (row + i * 8u < params.rows) {
            y[token * params.y_stride + params.first_row + row + i * 8u] = sums[i];
        }
    }
}

@compute @workgroup_size(64)
fn matmul(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let first_row = group_index(group, groups) * TILE;
    if (first_row >= params.rows) { // uniform: the whole workgroup leaves
        return;
    }
    let first_token = group.z * TILE;
    let half = lane & 31u;
    let own_row = min(first_row + half, params.rows - 1u);
    let own_token = min(first_token + half, frame.tokens - 1u);
    let row = lane & 7u;    // this lane's rows: row, row + 8, row + 16, row + 24
    let token = lane >> 3u; // this lane's tokens, likewise
    var sum0 = vec4<f32>(); // [4 rows] of its first token
    var sum1 = vec4<f32>();
    var sum2 = vec4<f32>();
    var sum3 = vec4<f32>();

    for (var b = 0u; b < params.blocks; b++) {
        let at = half * PITCH;
        if (lane < 32u) {
            let w = decode(own_row * params.blocks + b);
            w_tile[at] = w.w0;
            w_tile[at + 1u] = w.w1;
            w_tile[at + 2u] = w.w2;
            w_tile[at + 3u] = w.w3;
            w_tile[at + 4u] = w.w4;
            w_tile[at + 5u] = w.w5;
            w_tile[at + 6u] = w.w6;
            w_tile[at + 7u] = w.w7;
        } else {
            let i = own_token * params.x_stride + b * 8u;
            for (var k = 0u; k < 8u; k++) {
                x_tile[at + k] = x[i + k];
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < 8u; k++) {
            let w0 = w_tile[row * PITCH + k];
            let w1 = w_tile[(row + 8u) * PITCH + k];
            let w2 = w_tile[(row + 16u) * PITCH + k];
            let w3 = w_tile[(row + 24u) * PITCH + k];
            let x0 = x_tile[token * PITCH + k];
            let x1 = x_tile[(token + 8u) * PITCH + k];
            let x2 = x_tile[(token + 16u) * PITCH + k];
            let x3 = x_tile[(token + 24u) * PITCH + k];
            sum0 += vec4<f32>(dot(w0, x0), dot(w1, x0), dot(w2, x0), dot(w3, x0));
            sum1 += vec4<f32>(dot(w0, x1), dot(w1, x1), dot(w2, x1), dot(w3, x1));
            sum2 += vec4<f32>(dot(w0, x2), dot(w1, x2), dot(w2, x2), dot(w3, x2));
            sum3 += vec4<f32>(dot(w0, x3), dot(w1, x3), dot(w2, x3), dot(w3, x3));
        }
        workgroupBarrier();
    }
    store(first_token + token, first_row + row, sum0);
    store(first_token + token + 8u, first_row + row, sum1);
    store(first_token + token + 16u, first_row + row, sum2);
    store(first_token + token + 24u, first_row + row, sum3);
}
