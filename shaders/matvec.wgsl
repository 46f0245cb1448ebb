// y[t] = W x[t] for one to eight tokens: one workgroup for four rows of W, whose blocks its lanes take in turn; then they
// add up. A block is decoded once for all tokens. matvec_lane.wgsl is the version for processors that emulate a GPU.

override TOKENS: u32 = 1u;
const SLOTS: u32 = 1u; // of four rows each, for the finish

@compute @workgroup_size(GROUP)
fn matvec(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lanes: Lanes,
) {
    let g = group_index(group, groups);
    let row = g * 4u;
    if (row >= params.rows) { // uniform: the whole workgroup leaves
        return;
    }
    // rows past the end repeat the last one, tokens likewise; they are not stored
    let last = params.rows - 1u;
    let end = frame.tokens - 1u;
    let t = group.z * TOKENS;
    let lane = Lane(lanes.lane);
    var sums: array<vec4<f32>, 8>;
    for (var b = lanes.lane; b < params.blocks; b += GROUP) {
        let w0 = w_at(first_block(row) + b * BLOCK_STEP);
        let w1 = w_at(first_block(min(row + 1u, last)) + b * BLOCK_STEP);
        let w2 = w_at(first_block(min(row + 2u, last)) + b * BLOCK_STEP);
        let w3 = w_at(first_block(min(row + 3u, last)) + b * BLOCK_STEP);
        for (var i = 0u; i < TOKENS; i++) {
            let v = x_at(min(t + i, end), b, lane);
            sums[i] += vec4<f32>(block_dot(w0, v), block_dot(w1, v), block_dot(w2, v), block_dot(w3, v));
        }
    }
    var scale = 1.0;
    if (NORMED) {
        scale = norm_scale(group_sum(squares_from(lanes.lane, GROUP), lanes));
    }
    for (var i = 0u; i < TOKENS; i++) {
        let total = group_sum4(sums[i], lanes) * scale;
        if (lanes.lane == 0u && t + i <= end) {
            finish(0u, t + i, row, total);
        }
    }
    finish_group(g, row, lanes.lane);
}
