// x as f32, read as it is by every lane. operand/f32_subgroup8.wgsl and operand/bytes.wgsl define the same names.

@group(0) @binding(4) var<storage, read> x: array<vec4<f32>>; // [T, K]

alias W = Block;

struct Lane {
    @builtin(local_invocation_index) index: u32,
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

fn x_at(token: u32, block: u32, lane: Lane) -> X {
    let i = token * params.x_stride + block * 8u;
    let v = X(x[i], x[i + 1u], x[i + 2u], x[i + 3u], x[i + 4u], x[i + 5u], x[i + 6u], x[i + 7u], 0.0);
    return with_sum(v);
}
