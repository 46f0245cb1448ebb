// x is what W is multiplied with. input/normed.wgsl defines the same names.

const NORMED: bool = false;

fn squares_from(first: u32, step: u32) -> f32 {
    return 0.0;
}

fn norm_scale(squares: f32) -> f32 {
    return 1.0;
}
