// Keys and values where all lanes of a subgroup of exactly eight want the same one: each loads an eighth of it and hands it
// round (see operand/f32_subgroup8.wgsl).

const NEEDS_ALL_LANES: bool = true;

struct Lane {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
}

// Eight vec4 of one key or value, from element i of the cache on.
struct Eight {
    v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>,
    v4: vec4<f32>, v5: vec4<f32>, v6: vec4<f32>, v7: vec4<f32>,
}

fn spread(v: vec4<f32>) -> Eight {
    return Eight(
        subgroupBroadcast(v, 0u), subgroupBroadcast(v, 1u), subgroupBroadcast(v, 2u), subgroupBroadcast(v, 3u),
        subgroupBroadcast(v, 4u), subgroupBroadcast(v, 5u), subgroupBroadcast(v, 6u), subgroupBroadcast(v, 7u),
    );
}

fn keys_at(i: u32, lane: Lane) -> Eight {
    return spread(key_at(i + lane.subgroup_lane));
}

fn values_at(i: u32, lane: Lane) -> Eight {
    return spread(value_at(i + lane.subgroup_lane));
}
