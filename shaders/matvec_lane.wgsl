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
    let row0 = min(row, last) * params.blocks;
    let row1 = min(row + 1u, last) * params.blocks;
    let row2 = min(row + 2u, last) * params.blocks;
    let row3 = min(row + 3u, last) * params.blocks;
    var sums = vec4<f32>();
    for (var b = 0u; b < params.blocks; b++) {
        let v = x_at(0u, b, lane);
        sums.x += block_dot(w_at(row0 + b), v);
        sums.y += block_dot(w_at(row1 + b), v);
        sums.z += block_dot(w_at(row2 + b), v);
        sums.w += block_dot(w_at(row3 + b), v);
    }
    finish(lane.index, 0u, row, sums * norm_scale(squares_from(0u, 1u)));
    finish_group(g, g * LANES * 4u, lane.index);
}
