// Activations to signed bytes: what operand/q8.wgsl reads.

// Three vec4 a block: 32 bytes, then scale and scale * sum. Written as words.
struct Scale {
    scale: f32,
    inverse: f32, // 0 for a block of zeros
}

fn scale_of(most: f32) -> Scale {
    return Scale(most / 127.0, select(0.0, 127.0 / most, most > 1e-30)); // tinier blocks are zeros
}

fn quantize4(v: vec4<f32>, inverse: f32) -> vec4<i32> {
    return vec4<i32>(clamp(round(v * inverse), vec4<f32>(-127.0), vec4<f32>(127.0)));
}

fn most4(v: vec4<f32>) -> f32 {
    let a = abs(v);
    return max(max(a.x, a.y), max(a.z, a.w));
}
