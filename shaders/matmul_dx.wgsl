// dx[t] = dy[t] W: the backward pass of y = W x to x, for weights of any format. One workgroup for 32 tokens and 64
// channels. It goes over the rows of W, 32 at a time: each lane decodes one block of them, which then serves all tokens.
// matmul_dx_lane.wgsl is the version for processors that emulate a GPU.

const TILE: u32 = 32u; // rows of W, and tokens

var<workgroup> w_tile: array<vec4<f32>, TILE * 16u>; // [32 rows, 64 channels]
var<workgroup> dy_tile: array<vec4<f32>, TILE * 8u>; // [32 rows, 32 tokens]

@compute @workgroup_size(64)
fn matmul_dx(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let block = min(group.x * 2u + (index & 1u), params.blocks - 1u); // that this lane decodes, of row index / 2
    let first_token = group.z * TILE;
    let tokens = index >> 3u;          // four of them
    let channels = (index & 7u) * 2u;  // two vec4
    var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>(); // channels, token by token
    var t0 = vec4<f32>(); var t1 = vec4<f32>(); var t2 = vec4<f32>(); var t3 = vec4<f32>(); // the next four channels
    for (var row = 0u; row < params.rows; row += TILE) {
        let w = decode(first_block(min(row + (index >> 1u), params.rows - 1u)) + block * BLOCK_STEP);
        let i = (index >> 1u) * 16u + (index & 1u) * 8u;
        w_tile[i] = w.w0 * w.scale.x + w.offset;
        w_tile[i + 1u] = w.w1 * w.scale.x + w.offset;
        w_tile[i + 2u] = w.w2 * w.scale.x + w.offset;
        w_tile[i + 3u] = w.w3 * w.scale.x + w.offset;
        w_tile[i + 4u] = w.w4 * w.scale.y + w.offset;
        w_tile[i + 5u] = w.w5 * w.scale.y + w.offset;
        w_tile[i + 6u] = w.w6 * w.scale.y + w.offset;
        w_tile[i + 7u] = w.w7 * w.scale.y + w.offset;
        for (var j = index; j < TILE * 8u; j += 64u) {
            let r = j & (TILE - 1u); // neighbouring lanes read neighbouring rows of a token
            let token = first_token + (j >> 5u) * 4u;
            dy_tile[r * 8u + (j >> 5u)] = vec4<f32>(
                dy_at(token, row + r), dy_at(token + 1u, row + r), dy_at(token + 2u, row + r), dy_at(token + 3u, row + r),
            );
        }
        workgroupBarrier();
        for (var r = 0u; r < TILE; r++) {
            let d = dy_tile[r * 8u + tokens];
            let a = w_tile[r * 16u + channels];
            let b = w_tile[r * 16u + channels + 1u];
            s0 += d.x * a; s1 += d.y * a; s2 += d.z * a; s3 += d.w * a;
            t0 += d.x * b; t1 += d.y * b; t2 += d.z * b; t3 += d.w * b;
        }
        workgroupBarrier();
    }
    let token = first_token + tokens * 4u;
    let i = group.x * 16u + channels;
    put(token, i, s0); put(token + 1u, i, s1); put(token + 2u, i, s2); put(token + 3u, i, s3);
    put(token, i + 1u, t0); put(token + 1u, i + 1u, t1); put(token + 2u, i + 1u, t2); put(token + 3u, i + 1u, t3);
}
