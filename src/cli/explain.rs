//! `explain`: the plan of a model step by step, and the time that it takes at best on this device or a described one.

use super::open::{ModelFile, RunArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::bench::Ceilings;
use peregrine::plan::{Frame, Plan};
use peregrine::{Model, Profile, SessionOptions, block_on};
use std::path::PathBuf;

#[derive(Args)]
pub struct Explain {
    /// A GGUF file; only its header is read, so it may be larger than this machine
    model: PathBuf,
    /// Tokens before the decoded one
    #[arg(long, value_name = "N", default_value_t = 512)]
    position: u32,
    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", default_value_t = 512)]
    prompt: u32,
    /// Describe another device: GB/s that it reads
    #[arg(long, value_name = "B", requires = "tflops", help_heading = "Another device")]
    gbps: Option<f64>,
    /// TFLOP/s of its f32 multiply-adds
    #[arg(long, value_name = "F", requires = "gbps", help_heading = "Another device")]
    tflops: Option<f64>,
    /// Microseconds that a dispatch takes which does nothing
    #[arg(long, value_name = "US", default_value_t = 3.0, help_heading = "Another device")]
    dispatch_us: f64,
    #[command(flatten)]
    run: RunArgs,
}

impl Explain {
    pub fn run(self) -> Result<(), Failure> {
        let file = ModelFile::open_model(Some(&self.model))?;
        let mut gpu = self.run.gpu()?;
        let (ceilings, serial) = match (self.gbps, self.tflops) {
            (Some(gbps), Some(tflops)) => {
                gpu = gpu.with_profile(Profile { lanes: false, eights: false, int8: false, ..gpu.profile() });
                let flops = tflops * 1e12;
                (Ceilings { read: gbps * 1e9, flops, int8: flops, dispatch: self.dispatch_us * 1e-6 }, false)
            }
            _ => (block_on(Ceilings::measure(&gpu))?, gpu.profile().lanes),
        };
        output::line(
            format!(
                "A device that reads {:.1} GB/s and does {:.2} TFLOP/s in f32, {:.2} Top/s with bytes, with {:.1} us a dispatch. \
                 Times are what it could reach{}.",
                ceilings.read / 1e9,
                ceilings.flops / 1e12,
                ceilings.int8 / 1e12,
                ceilings.dispatch * 1e6,
                if serial { "; on a processor loads and arithmetic add up" } else { "" }
            ),
            0,
        )?;
        let gpu = if self.gbps.is_none() { file.tuned(gpu, &self.run) } else { gpu };
        let model = block_on(Model::load(&gpu.outline(), &file.gguf, |_, _| {}))?;
        let context = (self.position + 1).max(self.prompt);
        let chunk = Some(self.prompt);
        let options = SessionOptions { context: Some(context), kv: self.run.kv.into(), exact: self.run.exact, chunk };
        let session = model.session(&options)?;
        let prefill = Frame { position: 0, tokens: self.prompt };
        show(session.plan(), Frame { position: self.position, tokens: 1 }, &ceilings, serial)?;
        Ok(show(session.prefill_plan(), prefill, &ceilings, serial)?)
    }
}

/// The steps outside the blocks, and of those in blocks the first of each kind: most blocks are alike.
fn show(plan: &Plan, frame: Frame, ceilings: &Ceilings, serial: bool) -> std::io::Result<()> {
    let Frame { position, tokens } = frame;
    output::line(format!("\n{}: {tokens} tokens after {position}", plan.name), 0)?;
    let head = ("step", "kernel", "of", "MB", "Mflop", "us at best");
    output::line(
        format!("{:<24} {:<16} {:<38} {:>9} {:>10} {:>10}", head.0, head.1, head.2, head.3, head.4, head.5),
        0,
    )?;
    let shape = |i: usize| (plan.steps[i].kind(), plan.steps[i].kernel.name, plan.steps[i].note.as_str());
    let running: Vec<usize> = (0..plan.steps.len()).filter(|&i| plan.steps[i].runs(frame)).collect();
    let (mut shown, mut alike, mut total) = (Vec::new(), 0, 0.0);
    for &i in &running {
        let step = &plan.steps[i];
        let seconds = ceilings.seconds(step.cost, frame, serial);
        total += seconds;
        let is_in_block = step.label.starts_with("blk.");
        if is_in_block && shown.contains(&shape(i)) {
            alike += 1;
            continue;
        }
        if !is_in_block && alike > 0 {
            output::line(format!("(and {alike} steps of blocks that are like those above)"), 0)?;
            alike = 0;
        }
        shown.push(shape(i));
        output::line(
            format!(
                "{:<24} {:<16} {:<38} {:>9.2} {:>10.1} {:>10.1}",
                step.label,
                step.kernel.name,
                step.note,
                step.cost.bytes(frame) as f64 / 1e6,
                step.cost.flops(frame) as f64 / 1e6,
                seconds * 1e6
            ),
            0,
        )?;
    }
    let (bytes, flops) = running.iter().fold((0, 0), |(bytes, flops), &i| {
        (bytes + plan.steps[i].cost.bytes(frame), flops + plan.steps[i].cost.flops(frame))
    });
    output::line(
        format!(
            "{} dispatches, {}, {:.2} Gflop: {:.3} ms at best, {:.1} tokens/s",
            running.len(),
            output::bytes(bytes),
            flops as f64 / 1e9,
            total * 1e3,
            tokens as f64 / total
        ),
        0,
    )
}
