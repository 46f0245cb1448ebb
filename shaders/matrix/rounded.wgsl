// The emulation's numbers with no more bits than a half has, so that what hardware of halves gives can be seen without it.
// matrix/single.wgsl defines the same names.

alias Number = f32;

fn number(v: f32) -> Number {
    return unpack2x16float(pack2x16float(vec2<f32>(clamp(v, -65504.0, 65504.0), 0.0))).x;
}
