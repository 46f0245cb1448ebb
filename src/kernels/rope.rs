//! Rotary position embedding, in place.

use super::plain;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernel::params;
use crate::model::{Pairing, Rope};
use crate::plan::{Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { RopeParams { heads: u32, head_size: u32, pairs: u32, stride: u32, halves: u32, } }

/// The angles of every position: (cos, sin) times the magnitude, [context, pairs]. Computed in f64, since f32 loses
/// the angle itself at high positions.
pub struct Angles {
    pub buffer: wgpu::Buffer,
    pub pairs: u32,
    pub pairing: Pairing,
}

impl Angles {
    pub fn upload(gpu: &Gpu, rope: &Rope, context: u32) -> Result<Angles> {
        let pairs = rope.inv_freq.len();
        let buffer = gpu.buffer("rope angles", context as u64 * pairs as u64 * 8)?;
        let turn = |position: u32, frequency: f32| {
            let (sin, cos) = (position as f64 * frequency as f64).sin_cos();
            [(cos * rope.magnitude as f64) as f32, (sin * rope.magnitude as f64) as f32]
        };
        let turn = &turn;
        let rows: Vec<[f32; 2]> =
            (0..context).flat_map(|position| rope.inv_freq.iter().map(move |&f| turn(position, f))).collect();
        gpu.upload(&buffer, [bytemuck::cast_slice(&rows)])?;
        Ok(Angles { buffer, pairs: pairs as u32, pairing: rope.pairing })
    }
}

/// x [T, heads, D].
pub fn rope(plan: &mut PlanBuilder, label: &str, angles: &Angles, head_size: u32, x: &Tensor) -> Result<()> {
    let heads = x.cols / head_size;
    let halves = (angles.pairing == Pairing::Halves) as u32;
    let params = RopeParams { heads, head_size, pairs: angles.pairs, stride: x.stride(), halves };
    let buffers = [("angles", &angles.buffer), ("x", &x.buffer)];
    plan.step(label, &plain("rope.wgsl"), params, &buffers, Grid::lanes(heads * angles.pairs), x)
}
