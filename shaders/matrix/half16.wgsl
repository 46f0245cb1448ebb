// 16 x 16 matrices of halves with sums in f32: NVIDIA's tensor cores through Vulkan.

enable f16;
enable wgpu_cooperative_matrix;

const SIZE: u32 = 16u;

alias Number = f16;
alias MatrixA = coop_mat16x16<f16, A>;
alias MatrixB = coop_mat16x16<f16, B>;
alias MatrixC = coop_mat16x16<f32, C>;

fn number(v: f32) -> Number {
    return f16(clamp(v, -65504.0, 65504.0));
}
