// dW = dyᵀ x for processors that emulate a GPU, whose subgroups have exactly eight lanes: a lane has eight channels of
// sixteen rows of W, and goes over the tokens. dy, which all lanes want, is loaded by one of them and handed round.
// matmul_dw.wgsl is the version for real GPUs.

const ROWS: u32 = 16u;

struct Lane {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
}

// Four channels of eight rows.
struct Eight {
    v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>,
    v4: vec4<f32>, v5: vec4<f32>, v6: vec4<f32>, v7: vec4<f32>,
}

// The product of eight rows' dy, one of each lane, and four channels is added.
fn with_product(sum: Eight, d: f32, x: vec4<f32>) -> Eight {
    return Eight(
        sum.v0 + subgroupBroadcast(d, 0u) * x, sum.v1 + subgroupBroadcast(d, 1u) * x,
        sum.v2 + subgroupBroadcast(d, 2u) * x, sum.v3 + subgroupBroadcast(d, 3u) * x,
        sum.v4 + subgroupBroadcast(d, 4u) * x, sum.v5 + subgroupBroadcast(d, 5u) * x,
        sum.v6 + subgroupBroadcast(d, 6u) * x, sum.v7 + subgroupBroadcast(d, 7u) * x,
    );
}

fn put_rows(row: u32, i: u32, sum: Eight) {
    put_row(row, i, sum.v0); put_row(row + 1u, i, sum.v1); put_row(row + 2u, i, sum.v2); put_row(row + 3u, i, sum.v3);
    put_row(row + 4u, i, sum.v4); put_row(row + 5u, i, sum.v5); put_row(row + 6u, i, sum.v6); put_row(row + 7u, i, sum.v7);
}

@compute @workgroup_size(8)
fn matmul_dw_lane(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    lane: Lane,
) {
    let tile = group_index(group, groups);
    let row = tile / params.columns * ROWS;
    let i = tile % params.columns * 16u + lane.index; // this lane's channels: four here, and four from 32 further
    let x0 = min(i, params.vectors - 1u);
    let x1 = min(i + 8u, params.vectors - 1u);
    var a = Eight(); var b = Eight(); // the first eight rows
    var c = Eight(); var d = Eight(); // the next
    for (var token = 0u; token < frame.tokens; token++) {
        let first = x[token * params.x_stride + x0];
        let second = x[token * params.x_stride + x1];
        let low = dy_of(token, row + lane.subgroup_lane);
        let high = dy_of(token, row + 8u + lane.subgroup_lane);
        a = with_product(a, low, first);
        b = with_product(b, low, second);
        c = with_product(c, high, first);
        d = with_product(d, high, second);
    }
    put_rows(row, i, a);
    put_rows(row, i + 8u, b);
    put_rows(row + 8u, i, c);
    put_rows(row + 8u, i + 8u, d);
}
