// 8 x 8 matrices of f32: the simdgroup matrices of Apple through Metal.

enable wgpu_cooperative_matrix;

const SIZE: u32 = 8u;

alias Number = f32;
alias MatrixA = coop_mat8x8<f32, A>;
alias MatrixB = coop_mat8x8<f32, B>;
alias MatrixC = coop_mat8x8<f32, C>;

fn number(v: f32) -> Number {
    return v;
}
