// y[t] = W x[t], one lane a row of W, for processors that emulate a GPU: a lane streams its row, nothing is shared.
// matvec.wgsl is the version for real GPUs.

@compute @workgroup_size(64)
fn matvec_lane(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) lane: u32,
) {
    let row = group_index(group, groups) * 64u + lane;
    if (row >= params.rows) {
        return;
    }
    let token = group.z;
    let first = row * params.blocks;
    var sum = vec4<f32>();
    for (var b = 0u; b < params.blocks; b++) {
        let w = decode(first + b);
        let i = token * params.x_stride + b * 8u;
        sum += w.w0 * x[i];
        sum += w.w1 * x[i + 1u];
        sum += w.w2 * x[i + 2u];
        sum += w.w3 * x[i + 3u];
        sum += w.w4 * x[i + 4u];
        sum += w.w5 * x[i + 5u];
        sum += w.w6 * x[i + 6u];
        sum += w.w7 * x[i + 7u];
    }
    y[token * params.y_stride + params.first_row + row] = sum.x + sum.y + sum.z + sum.w;
}
