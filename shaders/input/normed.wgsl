// x is the residual stream times the norm's gain, but not yet divided by its root mean square: the step that wrote it
// (finish/add_norm.wgsl) left sums of squares, and a factor common to the row may as well be applied to the results.

@group(0) @binding(6) var<storage, read> squares: array<f32>; // [params.squares]

const NORMED: bool = true;

// The sum of every `step`th of them, from `first` on.
fn squares_from(first: u32, step: u32) -> f32 {
    var sum = 0.0;
    for (var i = first; i < params.squares; i += step) {
        sum += squares[i];
    }
    return sum;
}

// What the results are multiplied with, from the sum of all squares.
fn norm_scale(squares: f32) -> f32 {
    return inverseSqrt(squares / params.width + params.eps);
}
