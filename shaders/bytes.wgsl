// f32 numbers to signed bytes.

struct Scale {
    scale: f32,
    inverse: f32, // 0 for a block of zeros
}

fn scale_of(most_bits: u32) -> Scale {
    let most = bitcast<f32>(most_bits);
    return Scale(most / 127.0, select(0.0, 127.0 / most, most > 1e-30)); // tinier blocks are zeros
}

// The largest magnitude, as bits: they order as the numbers do with NaN above all, where a maximum of floats may drop it.
fn most4(v: vec4<f32>) -> u32 {
    let a = bitcast<vec4<u32>>(abs(v));
    return max(max(a.x, a.y), max(a.z, a.w));
}

fn quantize4(v: vec4<f32>, inverse: f32) -> vec4<i32> {
    return vec4<i32>(clamp(round(v * inverse), vec4<f32>(-127.0), vec4<f32>(127.0)));
}

// Four activations as operand/bytes.wgsl reads them: v = scale * (high + low / 254).
struct Bytes {
    high: u32,
    low: u32,
    sum: f32, // of high + low / 254
}

fn bytes_of(v: vec4<f32>, inverse: f32) -> Bytes {
    let high = quantize4(v, inverse);
    let rest = (v * inverse - vec4<f32>(high)) * 254.0; // of a step of high, which is half a step away at most
    let low = quantize4(rest, 1.0);
    let all = vec4<f32>(high) + vec4<f32>(low) / 254.0;
    return Bytes(pack4xI8(high), pack4xI8(low), (all.x + all.y) + (all.z + all.w));
}
