//! Measurements of a device and of a model on it. Nothing here judges: it measures and tells.

use crate::error::Result;
use crate::generate::GenerateOptions;
use crate::gpu::Gpu;
use crate::kernels::dot_bytes::{self, dot_bytes};
use crate::kernels::multiply_add::{self, multiply_add};
use crate::kernels::stream::stream;
use crate::plan::{Cost, Frame, PlanBuilder};
use crate::sampling::Sampling;
use crate::session::Session;
use crate::tensor::Tensor;
use std::time::Instant;

/// Bytes that the bandwidth test reads: more than the caches of most devices hold.
const STREAM_BYTES: u64 = 64 << 20;
/// Lanes of either test, and rounds of the arithmetic one.
const LANES: u32 = 16_384;
const ROUNDS: u32 = 256;

/// What a device can do at most, by our own measurement.
#[derive(Debug, Clone, Copy)]
pub struct Ceilings {
    /// Bytes a second that it reads: the ceiling of decoding, which reads every weight once a token.
    pub read: f64,
    /// f32 operations a second in multiply-adds (two each): the ceiling of prefill, which uses a weight for many tokens.
    pub flops: f64,
    /// The same in integer dot products of bytes.
    pub int8: f64,
    /// Seconds that a dispatch takes which does nothing.
    pub dispatch: f64,
}

impl Ceilings {
    pub async fn measure(gpu: &Gpu) -> Result<Ceilings> {
        Ok(Ceilings {
            read: read_bandwidth(gpu).await?,
            flops: arithmetic(gpu).await?,
            int8: int8_arithmetic(gpu).await?,
            dispatch: dispatch(gpu).await?,
        })
    }

    /// Seconds that a step takes at best, its own dispatch included. A processor that emulates a GPU spends the same
    /// instruction slots on loads and on arithmetic, so there both add up (`serial`); a GPU does one behind the other.
    pub fn seconds(&self, cost: Cost, frame: Frame, serial: bool) -> f64 {
        let read = cost.bytes(frame) as f64 / self.read;
        let compute = cost.flops(frame) as f64 / if cost.int8 { self.int8 } else { self.flops };
        self.dispatch + if serial { read + compute } else { read.max(compute) }
    }
}

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
    let operations = 2.0 * LANES as f64 * ROUNDS as f64 * multiply_add::PER_ROUND as f64;
    Ok(operations / fastest(gpu, plan, &y).await?)
}

/// Operations a second in integer dot products of four bytes (eight each), the best of several runs.
pub async fn int8_arithmetic(gpu: &Gpu) -> Result<f64> {
    let y = Tensor::new(gpu, "arithmetic sums", 1, LANES)?;
    let mut plan = PlanBuilder::new(gpu, 1);
    dot_bytes(&mut plan, "dot of bytes", ROUNDS, &y)?;
    let operations = 2.0 * LANES as f64 * ROUNDS as f64 * dot_bytes::PER_ROUND as f64;
    Ok(operations / fastest(gpu, plan, &y).await?)
}

/// Seconds of one dispatch of one workgroup with next to nothing to do, the best of several runs of many.
pub async fn dispatch(gpu: &Gpu) -> Result<f64> {
    const DISPATCHES: u32 = 200;
    let y = Tensor::new(gpu, "nothing", 1, 64)?;
    let mut plan = PlanBuilder::new(gpu, 1);
    for _ in 0..DISPATCHES {
        multiply_add(&mut plan, "nothing", 0, &y)?;
    }
    Ok(fastest(gpu, plan, &y).await? / DISPATCHES as f64)
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
    /// Seconds from the prompt to the first token of the run that warms up.
    pub first_token: f64,
    pub prefill: Vec<f64>,
    pub decode: Vec<f64>,
}

/// Prefills `prompt` tokens and decodes `tokens` with the usual sampling, `runs` times after one that warms up.
/// Prefill ends with the first token of the answer, as a user sees it.
pub async fn speeds(session: &mut Session, prompt: &[u32], tokens: u32, runs: u32) -> Result<Speeds> {
    let mut speeds = Speeds::default();
    for run in 0..=runs {
        session.truncate(0);
        let start = Instant::now();
        session.append(prompt).await?;
        let sampling = Sampling { seed: Some(1), ..Sampling::default() };
        let max_tokens = Some(tokens + 1); // the first one needs no pass of decode
        let mut answer = session.generate(GenerateOptions { sampling, max_tokens, end_ids: Vec::new() })?;
        answer.next_token().await?;
        let seconds = start.elapsed().as_secs_f64();
        if run == 0 {
            speeds.first_token = seconds;
        } else {
            speeds.prefill.push(prompt.len() as f64 / seconds);
        }
        let start = Instant::now();
        while answer.next_token().await?.is_some() {}
        if run > 0 {
            speeds.decode.push(tokens as f64 / start.elapsed().as_secs_f64());
        }
    }
    Ok(speeds)
}

/// Seconds of the processor's time to record a token: its pass of decode and the choice of the next. The median of many.
/// Nothing is submitted, so that a processor which emulates the GPU does not lose what its caches hold meanwhile.
pub fn recording(session: &Session) -> f64 {
    let device = session.model().gpu().device();
    let frame = Frame { position: session.context() - 1, tokens: 1 };
    let seconds: Vec<f64> = (0..50)
        .map(|_| {
            let start = Instant::now();
            let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            session.plan().record(&mut encoder, frame);
            session.sample_plan().record(&mut encoder, frame);
            drop(encoder.finish());
            start.elapsed().as_secs_f64()
        })
        .collect();
    median(&seconds)
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
