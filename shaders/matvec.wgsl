// y[t] = W x[t], one workgroup for ROWS rows of W: its lanes take the blocks of a row in turn, then add up.
// matvec_lane.wgsl is the version for processors that emulate a GPU.

const ROWS: u32 = 4u;

// The dot product of block b of a row with the x that a lane holds.
fn block_dot(w: Block, v: Block) -> f32 {
    return dot(w.w0, v.w0) + dot(w.w1, v.w1) + dot(w.w2, v.w2) + dot(w.w3, v.w3)
        + dot(w.w4, v.w4) + dot(w.w5, v.w5) + dot(w.w6, v.w6) + dot(w.w7, v.w7);
}

@compute @workgroup_size(GROUP)
fn matvec(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lanes: Lanes,
) {
    let row = group_index(group, groups) * ROWS;
    if (row >= params.rows) { // uniform: the whole workgroup leaves
        return;
    }
    let last = params.rows - 1u;
    let token = group.z;
    var sum = vec4<f32>();
    for (var b = lanes.lane; b < params.blocks; b += GROUP) {
        let i = token * params.x_stride + b * 8u;
        let v = Block(x[i], x[i + 1u], x[i + 2u], x[i + 3u], x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u]);
        // rows past the end repeat the last one; they are not stored
        sum.x += block_dot(decode(row * params.blocks + b), v);
        sum.y += block_dot(decode(min(row + 1u, last) * params.blocks + b), v);
        sum.z += block_dot(decode(min(row + 2u, last) * params.blocks + b), v);
        sum.w += block_dot(decode(min(row + 3u, last) * params.blocks + b), v);
    }
    let total = vec4<f32>(
        group_sum(sum.x, lanes), group_sum(sum.y, lanes), group_sum(sum.z, lanes), group_sum(sum.w, lanes),
    );
    if (lanes.lane < ROWS && row + lanes.lane < params.rows) {
        y[token * params.y_stride + params.first_row + row + lanes.lane] = total[lanes.lane];
    }
}
