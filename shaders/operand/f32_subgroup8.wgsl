// x as f32, where all lanes of a subgroup of exactly eight want the same block: each loads an eighth of it and hands it
// round. A processor that emulates a GPU loads lane by lane, so this saves it seven loads of eight.

@group(0) @binding(4) var<storage, read> x: array<f32>; // [T, K]

alias W = Block;

struct Lane {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
}

// A block of x, and its sum for the weights' offset.
struct X {
    v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>,
    v4: vec4<f32>, v5: vec4<f32>, v6: vec4<f32>, v7: vec4<f32>,
    sum: f32,
}

fn w_at(block: u32) -> W {
    return decode(block);
}

fn first_half(v: f32) -> vec4<f32> {
    return vec4<f32>(subgroupBroadcast(v, 0u), subgroupBroadcast(v, 1u), subgroupBroadcast(v, 2u), subgroupBroadcast(v, 3u));
}

fn second_half(v: f32) -> vec4<f32> {
    return vec4<f32>(subgroupBroadcast(v, 4u), subgroupBroadcast(v, 5u), subgroupBroadcast(v, 6u), subgroupBroadcast(v, 7u));
}

fn x_at(token: u32, block: u32, lane: Lane) -> X {
    let i = token * params.x_stride + block * 32u + lane.subgroup_lane;
    let a = x[i];
    let b = x[i + 8u];
    let c = x[i + 16u];
    let d = x[i + 24u];
    let sum = subgroupAdd(a + b + c + d);
    return X(
        first_half(a), second_half(a), first_half(b), second_half(b),
        first_half(c), second_half(c), first_half(d), second_half(d), sum,
    );
}
