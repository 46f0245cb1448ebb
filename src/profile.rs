//! Where the time of a pass goes: each step timed by the GPU's own clock.

use crate::bench::{Ceilings, median};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::plan::{Frame, Plan};

/// One step of a profiled pass.
#[derive(Debug, Clone)]
pub struct StepTime {
    /// Number of the step in the plan.
    pub step: usize,
    /// Seconds after the pass began.
    pub start: f64,
    /// Seconds that it took.
    pub seconds: f64,
}

/// Runs a pass with every step in a compute pass of its own (timestamps exist only at the borders of passes on some
/// devices), which costs a little more than [`Plan::record`] does. Gives the steps that ran, in order.
///
/// # Errors
/// [`Error::Unsupported`] on a device without timestamps.
pub async fn profile(gpu: &Gpu, plan: &Plan, frame: Frame) -> Result<Vec<StepTime>> {
    if !gpu.device().features().contains(wgpu::Features::TIMESTAMP_QUERY) {
        return Err(Error::Unsupported {
            what: format!("{} has no timestamps", gpu.card().name),
            hint: "Time whole passes instead: `peregrine bench` without --profile".into(),
        });
    }
    let running: Vec<usize> = (0..plan.steps.len()).filter(|&i| plan.steps[i].runs(frame)).collect();
    let mut times = Vec::new();
    plan.write_frame(frame);
    // A query set holds 4096 timestamps at most: two a step.
    for steps in running.chunks(2048) {
        let count = 2 * steps.len() as u32;
        let queries = gpu.device().create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("profile"),
            ty: wgpu::QueryType::Timestamp,
            count,
        });
        let size = count as u64 * 8;
        let usage = wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC;
        let descriptor = wgpu::BufferDescriptor { label: Some("timestamps"), size, usage, mapped_at_creation: false };
        let resolved = gpu.device().create_buffer(&descriptor);
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for (i, &step) in steps.iter().enumerate() {
            let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                label: Some(&plan.steps[step].label),
                timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                    query_set: &queries,
                    beginning_of_pass_write_index: Some(2 * i as u32),
                    end_of_pass_write_index: Some(2 * i as u32 + 1),
                }),
            });
            plan.steps[step].record(&mut pass, frame);
        }
        encoder.resolve_query_set(&queries, 0..count, &resolved, 0);
        gpu.queue().submit([encoder.finish()]);
        let ticks: Vec<u64> = bytemuck::pod_collect_to_vec(&gpu.read(&resolved, 0, size).await?);
        let seconds = |ticks: u64| ticks as f64 * gpu.queue().get_timestamp_period() as f64 * 1e-9;
        times.extend(steps.iter().zip(ticks.chunks(2)).map(|(&step, ticks)| StepTime {
            step,
            start: seconds(ticks[0]),
            seconds: seconds(ticks[1].saturating_sub(ticks[0])),
        }));
    }
    let begin = times.first().map_or(0.0, |time| time.start);
    times.iter_mut().for_each(|time| time.start -= begin);
    Ok(times)
}

/// [`profile`], several times: the median of each step.
pub async fn profile_median(gpu: &Gpu, plan: &Plan, frame: Frame, runs: u32) -> Result<Vec<StepTime>> {
    let mut all = Vec::new();
    for run in 0..=runs {
        let times = profile(gpu, plan, frame).await?;
        if run > 0 {
            all.push(times); // the first one warms up
        }
    }
    let mut times = all.last().cloned().unwrap_or_default();
    for (i, time) in times.iter_mut().enumerate() {
        time.seconds = median(&all.iter().map(|run| run[i].seconds).collect::<Vec<_>>());
    }
    Ok(times)
}

/// Steps of the same kind, of all blocks together.
#[derive(Debug, Clone)]
pub struct Kind {
    /// The steps' label without the block: "attn_qkv".
    pub label: String,
    pub kernel: &'static str,
    pub steps: u32,
    /// Measured.
    pub seconds: f64,
    pub bytes: u64,
    pub flops: u64,
    /// What the device could do it in, from its own ceilings.
    pub best: f64,
}

/// Groups the steps of a profiled pass, those that lose the most time against the device's ceilings first.
pub fn kinds(plan: &Plan, frame: Frame, times: &[StepTime], ceilings: &Ceilings, serial: bool) -> Vec<Kind> {
    let mut kinds: Vec<Kind> = Vec::new();
    for time in times {
        let step = &plan.steps[time.step];
        let (label, kernel) = (step.kind(), step.kernel.name);
        let found = kinds.iter().position(|kind| kind.label == label && kind.kernel == kernel);
        let at = found.unwrap_or_else(|| {
            kinds.push(Kind { label: label.into(), kernel, steps: 0, seconds: 0.0, bytes: 0, flops: 0, best: 0.0 });
            kinds.len() - 1
        });
        let kind = &mut kinds[at];
        kind.steps += 1;
        kind.seconds += time.seconds;
        kind.bytes += step.cost.bytes(frame);
        kind.flops += step.cost.flops(frame);
        kind.best += ceilings.seconds(step.cost, frame, serial);
    }
    kinds.sort_by(|a, b| (b.seconds - b.best).total_cmp(&(a.seconds - a.best)));
    kinds
}
