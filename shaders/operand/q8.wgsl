// x as signed bytes with a scale for each block of 32 (finish/quantize.wgsl makes them), for integer dot products.

@group(0) @binding(4) var<storage, read> x: array<vec4<u32>>; // [T, K / 32, 3]: 32 bytes; scale, scale * sum of the bytes

alias W = Packed;

struct Lane {
    @builtin(local_invocation_index) index: u32,
}

struct X {
    low: vec4<u32>,
    high: vec4<u32>,
    scale: f32,
    sum: f32, // of the block, for the weights' offset
}

fn w_at(block: u32) -> W {
    return packed(block);
}

fn x_at(token: u32, block: u32, lane: Lane) -> X {
    let i = token * params.x_stride + block * 3u;
    let tail = bitcast<vec2<f32>>(x[i + 2u].xy);
    return X(x[i], x[i + 1u], tail.x, tail.y);
}

fn dot16(w: vec4<u32>, x: vec4<u32>) -> f32 {
    return f32(dot4I8Packed(w.x, x.x) + dot4I8Packed(w.y, x.y) + dot4I8Packed(w.z, x.z) + dot4I8Packed(w.w, x.w));
}

fn block_dot(w: W, x: X) -> f32 {
    return x.scale * (w.scale.x * dot16(w.low, x.low) + w.scale.y * dot16(w.high, x.high)) + w.offset * x.sum;
}
