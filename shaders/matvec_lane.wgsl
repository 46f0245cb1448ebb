// y = W x for one token, for processors that emulate a GPU: a lane streams four rows of W and nothing is shared.
// matvec.wgsl is the version for real GPUs.

const LANES: u32 = 16u;
const SLOTS: u32 = LANES; // of four rows each, for the finish

@compute @workgroup_size(LANES)
fn matvec_lane(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let g = group_index(group, groups);
    let row = (g * LANES + lane.index) * 4u;
    // rows past the end repeat the last one; they are not stored
    let last = params.rows - 1u;
    let row0 = first_block(min(row, last));
    let row1 = first_block(min(row + 1u, last));
    let row2 = first_block(min(row + 2u, last));
    let row3 = first_block(min(row + 3u, last));
    var sums = vec4<f32>();
    for (var b = 0u; b < params.blocks; b++) {
        let v = x_at(0u, b, lane);
        sums.x += block_dot(w_at(row0 + b * BLOCK_STEP), v);
        sums.y += block_dot(w_at(row1 + b * BLOCK_STEP), v);
        sums.z += block_dot(w_at(row2 + b * BLOCK_STEP), v);
        sums.w += block_dot(w_at(row3 + b * BLOCK_STEP), v);
    }
    finish(lane.index, 0u, row, sums * norm_scale(squares_from(0u, 1u)));
    finish_group(g, g * LANES * 4u, lane.index);
}
