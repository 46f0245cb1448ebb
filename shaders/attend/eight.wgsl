// Arithmetic on 32 channels of a head, for processors that emulate a GPU. attend/direct.wgsl and attend/subgroup8.wgsl
// define Eight.

fn dot8(a: Eight, b: Eight) -> f32 {
    let sum = a.v0 * b.v0 + a.v1 * b.v1 + a.v2 * b.v2 + a.v3 * b.v3 + a.v4 * b.v4 + a.v5 * b.v5 + a.v6 * b.v6 + a.v7 * b.v7;
    return (sum.x + sum.y) + (sum.z + sum.w);
}

fn add8(a: Eight, p: f32, b: Eight) -> Eight {
    return Eight(
        a.v0 + p * b.v0, a.v1 + p * b.v1, a.v2 + p * b.v2, a.v3 + p * b.v3,
        a.v4 + p * b.v4, a.v5 + p * b.v5, a.v6 + p * b.v6, a.v7 + p * b.v7,
    );
}

fn times8(s: Eight, f: f32) -> Eight {
    return Eight(s.v0 * f, s.v1 * f, s.v2 * f, s.v3 * f, s.v4 * f, s.v5 * f, s.v6 * f, s.v7 * f);
}

fn most_of(v: vec4<f32>) -> f32 {
    return max(max(v.x, v.y), max(v.z, v.w));
}
