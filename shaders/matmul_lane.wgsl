// y[t] = W x[t] for several tokens, for processors that emulate a GPU: one lane takes four rows of W and two, four or eight
// tokens, so that a block is decoded once for all of them and a token's x is loaded once for four rows.
// matmul.wgsl is the version for real GPUs.

const LANES: u32 = 16u;
override TOKENS: u32 = 8u;

fn dots(a: W, b: W, c: W, d: W, v: X) -> vec4<f32> {
    return vec4<f32>(block_dot(a, v), block_dot(b, v), block_dot(c, v), block_dot(d, v));
}

@compute @workgroup_size(LANES)
fn matmul_lane(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let row = (group_index(group, groups) * LANES + lane.index) * 4u;
    // tokens and rows past the end repeat the last ones; they are not stored
    let last = params.rows - 1u;
    let row0 = first_block(min(row, last));
    let row1 = first_block(min(row + 1u, last));
    let row2 = first_block(min(row + 2u, last));
    let row3 = first_block(min(row + 3u, last));
    let t = group.z * TOKENS;
    let end = frame.tokens - 1u;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    var s4 = vec4<f32>();
    var s5 = vec4<f32>();
    var s6 = vec4<f32>();
    var s7 = vec4<f32>();
    for (var n = 0u; n < params.blocks; n++) {
        let a = w_at(row0 + n * BLOCK_STEP);
        let b = w_at(row1 + n * BLOCK_STEP);
        let c = w_at(row2 + n * BLOCK_STEP);
        let d = w_at(row3 + n * BLOCK_STEP);
        s0 += dots(a, b, c, d, x_at(t, n, lane));
        s1 += dots(a, b, c, d, x_at(min(t + 1u, end), n, lane));
        if (TOKENS > 2u) {
            s2 += dots(a, b, c, d, x_at(min(t + 2u, end), n, lane));
            s3 += dots(a, b, c, d, x_at(min(t + 3u, end), n, lane));
        }
        if (TOKENS > 4u) {
            s4 += dots(a, b, c, d, x_at(min(t + 4u, end), n, lane));
            s5 += dots(a, b, c, d, x_at(min(t + 5u, end), n, lane));
            s6 += dots(a, b, c, d, x_at(min(t + 6u, end), n, lane));
            s7 += dots(a, b, c, d, x_at(min(t + 7u, end), n, lane));
        }
    }
    finish(0u, t, row, s0);
    if (t + 1u <= end) { finish(0u, t + 1u, row, s1); }
    if (TOKENS > 2u && t + 2u <= end) { finish(0u, t + 2u, row, s2); }
    if (TOKENS > 2u && t + 3u <= end) { finish(0u, t + 3u, row, s3); }
    if (TOKENS > 4u && t + 4u <= end) { finish(0u, t + 4u, row, s4); }
    if (TOKENS > 4u && t + 5u <= end) { finish(0u, t + 5u, row, s5); }
    if (TOKENS > 4u && t + 6u <= end) { finish(0u, t + 6u, row, s6); }
    if (TOKENS > 4u && t + 7u <= end) { finish(0u, t + 7u, row, s7); }
}
