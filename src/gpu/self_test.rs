//! What a driver may get wrong is tested on the device before it is trusted.

use super::{Gpu, Matrix};
use crate::error::Result;
use crate::formats::Format;
use crate::kernels::linear::{Finish, Input, Linear, linear_with};
use crate::kernels::rms_norm::Rows;
use crate::plan::{Frame, PlanBuilder};
use crate::tensor::Tensor;
use crate::weight::Weight;

/// Tokens, rows and columns that fill no tile evenly.
const T: u32 = 70;
const N: u32 = 100;
const K: u32 = 96;
/// Halves are off by 2^-11 of a factor, and a result of 96 products by less than this.
const TOLERANCE: f32 = 0.02;

/// Whether the kernel for matrix hardware and the plain one give the same results, up to the rounding of halves.
pub async fn matrix_agrees(gpu: &Gpu, matrix: Matrix) -> Result<bool> {
    // a plain generator (Knuth's constants): numbers from -1 to 1
    let mut state = 1u32;
    let mut numbers = |count: u32| -> Vec<f32> {
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        (0..count).map(|_| next()).collect()
    };
    let w = Weight::upload(gpu, "self-test", Format::F32, N, K, bytemuck::cast_slice(&numbers(N * K)))?;
    let x = Tensor::new(gpu, "self-test x", T, K)?;
    x.write(gpu, &numbers(T * K))?;
    let mut results = Vec::new();
    for kernel in [Linear::Matmul(64), Linear::MatmulMatrix(matrix)] {
        let y = Tensor::new(gpu, "self-test y", T, N)?;
        y.write(gpu, &vec![f32::NAN; (T * N) as usize])?;
        let mut plan = PlanBuilder::new(gpu, T);
        linear_with(&mut plan, "self-test", kernel, &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y))?;
        let plan = plan.finish("self-test")?;
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        plan.record(&mut encoder, Frame { position: 0, tokens: T });
        gpu.queue().submit([encoder.finish()]);
        results.push(y.read(gpu, T).await?);
        gpu.check()?;
    }
    Ok(results[0].iter().zip(&results[1]).all(|(a, b)| (a - b).abs() < TOLERANCE)) // a NaN is not below
}
