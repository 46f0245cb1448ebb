// Keys and values read as they are by every lane. attend/subgroup8.wgsl defines the same names.

// A lane without a query may leave: no other needs it.
const NEEDS_ALL_LANES: bool = false;

struct Lane {
    @builtin(local_invocation_index) index: u32,
}

// Eight vec4 of one key or value, from element i of the cache on.
struct Eight {
    v0: vec4<f32>, v1: vec4<f32>, v2: vec4<f32>, v3: vec4<f32>,
    v4: vec4<f32>, v5: vec4<f32>, v6: vec4<f32>, v7: vec4<f32>,
}

fn keys_at(i: u32, lane: Lane) -> Eight {
    return Eight(
        key_at(i), key_at(i + 1u), key_at(i + 2u), key_at(i + 3u),
        key_at(i + 4u), key_at(i + 5u), key_at(i + 6u), key_at(i + 7u),
    );
}

fn values_at(i: u32, lane: Lane) -> Eight {
    return Eight(
        value_at(i), value_at(i + 1u), value_at(i + 2u), value_at(i + 3u),
        value_at(i + 4u), value_at(i + 5u), value_at(i + 6u), value_at(i + 7u),
    );
}
