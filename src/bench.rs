//! Measurements of a device and of a model on it. Nothing here judges: it measures and tells.

use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernels::multiply_add::{PER_ROUND, multiply_add};
use crate::kernels::stream::stream;
use crate::plan::{Frame, PlanBuilder};
use crate::session::Session;
use crate::tensor::Tensor;
use std::time::Instant;

/// Bytes that the bandwidth test reads: more than the caches of most devices hold.
const STREAM_BYTES: u64 = 64 << 20;
/// Lanes of either test, and rounds of the arithmetic one.
const LANES: u32 = 16_384;
const ROUNDS: u32 = 256;

/// Bytes a second that the device reads from a storage buffer, the best of several runs of two access patterns.
/// It is the ceiling for decoding, which reads every weight once a token.
pub async fn read_bandwidth(gpu: &Gpu) -> Result<f64> {
    let bytes = STREAM_BYTES.min(gpu.max_binding());
    let vectors = (bytes / 16) as u32 / (4 * LANES) * (4 * LANES);
    let x = gpu.buffer("bandwidth test", bytes)?;
    let y = Tensor::new(gpu, "bandwidth sums", 1, LANES)?;
    let mut best: f64 = 0.0;
    for runs in [true, false] {
        let mut plan = PlanBuilder::new(gpu, 1);
        stream(&mut plan, "stream", &x, vectors, runs, &y)?;
        best = best.max(vectors as f64 * 16.0 / fastest(gpu, plan, &y).await?);
    }
    Ok(best)
}

/// f32 operations a second in multiply-adds (two each), the best of several runs.
/// It is the ceiling for prefill, which uses every weight for many tokens.
pub async fn arithmetic(gpu: &Gpu) -> Result<f64> {
    let y = Tensor::new(gpu, "arithmetic sums", 1, LANES)?;
    let mut plan = PlanBuilder::new(gpu, 1);
    multiply_add(&mut plan, "multiply-add", ROUNDS, &y)?;
    let operations = 2.0 * LANES as f64 * ROUNDS as f64 * PER_ROUND as f64;
    Ok(operations / fastest(gpu, plan, &y).await?)
}

/// Seconds of the fastest of several runs of a plan of one token.
async fn fastest(gpu: &Gpu, plan: PlanBuilder, output: &Tensor) -> Result<f64> {
    let plan = plan.finish("measurement")?;
    let mut best = f64::INFINITY;
    for _ in 0..6 {
        let start = Instant::now();
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        plan.record(&mut encoder, Frame { position: 0, tokens: 1 });
        gpu.queue().submit([encoder.finish()]);
        gpu.read(&output.buffer, 0, 4).await?; // waits for the queue
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

/// Speeds of one model in one session, in tokens a second: each run's own, in the order in which they ran.
#[derive(Debug, Clone, Default)]
pub struct Speeds {
    pub prefill: Vec<f64>,
    pub decode: Vec<f64>,
}

/// Prefills `prompt` tokens and decodes `tokens` greedily, `runs` times after one that warms up.
pub async fn speeds(session: &mut Session, prompt: &[u32], tokens: u32, runs: u32) -> Result<Speeds> {
    let mut speeds = Speeds::default();
    for run in 0..=runs {
        session.truncate(0);
        let start = Instant::now();
        session.append(prompt).await?;
        let mut next = session.greedy().await?;
        let prefill = prompt.len() as f64 / start.elapsed().as_secs_f64();
        let start = Instant::now();
        for _ in 0..tokens {
            session.append(&[next]).await?;
            next = session.greedy().await?;
        }
        if run > 0 {
            speeds.prefill.push(prefill);
            speeds.decode.push(tokens as f64 / start.elapsed().as_secs_f64());
        }
    }
    Ok(speeds)
}

/// The middle value; of an even number, the mean of the middle two. Zero of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let n = sorted.len();
    match n {
        0 => 0.0,
        _ => (sorted[(n - 1) / 2] + sorted[n / 2]) / 2.0,
    }
}
