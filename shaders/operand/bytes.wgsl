// x as signed bytes for integer dot products, two for each number (bytes.wgsl makes them): one alone is off by up to 1/254 of
// its block's largest number, which a model's answers show.

@group(0) @binding(4) var<storage, read> x: array<vec4<u32>>; // [T, K / 32, 5]: 32 high bytes; 32 low ones; scale, scale * sum

alias W = Packed;

struct Lane {
    @builtin(local_invocation_index) index: u32,
}

// A block of x: scale * (high + low / 254).
struct X {
    high0: vec4<u32>, high1: vec4<u32>,
    low0: vec4<u32>, low1: vec4<u32>,
    scale: f32,
    sum: f32, // of the block, for the weights' offset
}

fn w_at(block: u32) -> W {
    return packed(block);
}

fn x_at(token: u32, block: u32, lane: Lane) -> X {
    let i = token * params.x_stride + block * 5u;
    let tail = bitcast<vec2<f32>>(x[i + 4u].xy);
    return X(x[i], x[i + 1u], x[i + 2u], x[i + 3u], tail.x, tail.y);
}

fn dot16(w: vec4<u32>, high: vec4<u32>, low: vec4<u32>) -> f32 {
    let coarse = dot4I8Packed(w.x, high.x) + dot4I8Packed(w.y, high.y) + dot4I8Packed(w.z, high.z) + dot4I8Packed(w.w, high.w);
    let fine = dot4I8Packed(w.x, low.x) + dot4I8Packed(w.y, low.y) + dot4I8Packed(w.z, low.z) + dot4I8Packed(w.w, low.w);
    return f32(coarse) + f32(fine) / 254.0;
}

fn block_dot(w: W, x: X) -> f32 {
    let first = w.scale.x * dot16(w.low, x.high0, x.low0);
    return x.scale * (first + w.scale.y * dot16(w.high, x.high1, x.low1)) + w.offset * x.sum;
}
