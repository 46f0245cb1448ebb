// dx[t] = dy[t] W for processors that emulate a GPU, whose subgroups have exactly eight lanes: a lane has half a block of
// channels and sixteen tokens, and goes over the rows of W. It decodes a row's block once for all its tokens; dy, which all
// lanes want, is loaded by one of them and handed round. matmul_dx.wgsl is the version for real GPUs.

const TOKENS: u32 = 16u;

struct Lane {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
}

// Half a block: 16 channels.
struct Half {
    v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>,
}

fn half_of(w: Block, second: bool) -> Half {
    let scale = select(w.scale.x, w.scale.y, second);
    return Half(
        select(w.w0, w.w4, second) * scale + w.offset,
        select(w.w1, w.w5, second) * scale + w.offset,
        select(w.w2, w.w6, second) * scale + w.offset,
        select(w.w3, w.w7, second) * scale + w.offset,
    );
}

fn plus(sum: Half, d: f32, w: Half) -> Half {
    return Half(sum.v0 + d * w.v0, sum.v1 + d * w.v1, sum.v2 + d * w.v2, sum.v3 + d * w.v3);
}

fn put_half(token: u32, i: u32, sum: Half) {
    put(token, i, sum.v0);
    put(token, i + 1u, sum.v1);
    put(token, i + 2u, sum.v2);
    put(token, i + 3u, sum.v3);
}

@compute @workgroup_size(8)
fn matmul_dx_lane(@builtin(workgroup_id) group: vec3<u32>, lane: Lane) {
    let half = group.x * 8u + lane.index;
    let block = min(half >> 1u, params.blocks - 1u); // lanes past the end repeat the last one; they store nothing
    let second = (half & 1u) != 0u;
    let t = group.z * TOKENS;
    var s0 = Half(); var s1 = Half(); var s2 = Half(); var s3 = Half(); // token by token
    var s4 = Half(); var s5 = Half(); var s6 = Half(); var s7 = Half();
    var s8 = Half(); var s9 = Half(); var s10 = Half(); var s11 = Half();
    var s12 = Half(); var s13 = Half(); var s14 = Half(); var s15 = Half();
    for (var row = 0u; row < params.rows; row++) {
        let w = half_of(decode(first_block(row) + block * BLOCK_STEP), second);
        let d = dy_at(t + lane.subgroup_lane, row);
        let e = dy_at(t + 8u + lane.subgroup_lane, row);
        s0 = plus(s0, subgroupBroadcast(d, 0u), w);
        s1 = plus(s1, subgroupBroadcast(d, 1u), w);
        s2 = plus(s2, subgroupBroadcast(d, 2u), w);
        s3 = plus(s3, subgroupBroadcast(d, 3u), w);
        s4 = plus(s4, subgroupBroadcast(d, 4u), w);
        s5 = plus(s5, subgroupBroadcast(d, 5u), w);
        s6 = plus(s6, subgroupBroadcast(d, 6u), w);
        s7 = plus(s7, subgroupBroadcast(d, 7u), w);
        s8 = plus(s8, subgroupBroadcast(e, 0u), w);
        s9 = plus(s9, subgroupBroadcast(e, 1u), w);
        s10 = plus(s10, subgroupBroadcast(e, 2u), w);
        s11 = plus(s11, subgroupBroadcast(e, 3u), w);
        s12 = plus(s12, subgroupBroadcast(e, 4u), w);
        s13 = plus(s13, subgroupBroadcast(e, 5u), w);
        s14 = plus(s14, subgroupBroadcast(e, 6u), w);
        s15 = plus(s15, subgroupBroadcast(e, 7u), w);
    }
    let i = half * 4u;
    put_half(t, i, s0); put_half(t + 1u, i, s1); put_half(t + 2u, i, s2); put_half(t + 3u, i, s3);
    put_half(t + 4u, i, s4); put_half(t + 5u, i, s5); put_half(t + 6u, i, s6); put_half(t + 7u, i, s7);
    put_half(t + 8u, i, s8); put_half(t + 9u, i, s9); put_half(t + 10u, i, s10); put_half(t + 11u, i, s11);
    put_half(t + 12u, i, s12); put_half(t + 13u, i, s13); put_half(t + 14u, i, s14); put_half(t + 15u, i, s15);
}
