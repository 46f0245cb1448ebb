// The emulation's numbers as they are. matrix/rounded.wgsl defines the same names.

alias Number = f32;

fn number(v: f32) -> Number {
    return v;
}
