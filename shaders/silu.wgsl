// silu(gate) * up, where rows of gate and up take turns: (gate, up, gate, up).

fn swiglu2(v: vec4<f32>) -> vec2<f32> {
    let gate = v.xz;
    return v.yw * gate / (1.0 + exp(min(-gate, vec2<f32>(80.0)))); // beyond 80 exp would leave f32
}
