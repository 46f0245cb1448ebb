//! `explain`: the plan of a model step by step, and the time that it takes at best on this device or a described one.

use super::open::{ModelFile, RunArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::bench::Ceilings;
use peregrine::plan::{Frame, Plan, Step};
use peregrine::{Gpu, Model, block_on};
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
pub struct Explain {
    /// A GGUF file; only its header is read, so it may be larger than this machine
    model: PathBuf,
    /// Tokens before the decoded one
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(..u32::MAX as i64))]
    position: u32,
    /// Tokens of the prompt
    #[arg(short, long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(1..))]
    prompt: u32,
    /// Print one JSON object, with every step
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    described: Described,
    #[command(flatten)]
    run: RunArgs,
}

/// A device by its figures.
#[derive(Args)]
#[command(next_help_heading = "Another device")]
struct Described {
    /// Describe another device, which need not be there: GB/s that it reads
    #[arg(long, value_name = "B", requires = "tflops", conflicts_with = "gpu", value_parser = figure)]
    gbps: Option<f64>,
    /// TFLOP/s of its f32 multiply-adds
    #[arg(long, value_name = "F", requires = "gbps", value_parser = figure)]
    tflops: Option<f64>,
    /// Microseconds that a dispatch takes which does nothing [default: 3]
    #[arg(long, value_name = "US", requires = "gbps", value_parser = figure_or_zero)]
    dispatch_us: Option<f64>,
}

/// Within bounds that hold every device, so that all that is reckoned from it is finite.
fn figure(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|value| (1e-3..=1e9).contains(value));
    value.ok_or("expected a number from 0.001 to 1000000000".into())
}

/// No time at all leaves dispatches out of the reckoning.
fn figure_or_zero(text: &str) -> Result<f64, String> {
    if text.parse() == Ok(0.0) { Ok(0.0) } else { figure(text).map_err(|error| error + ", or 0") }
}

impl Explain {
    pub fn run(mut self) -> Result<(), Failure> {
        let file = ModelFile::open_model(Some(&self.model))?;
        let hint = "Choose a larger --ctx, or a smaller --position and --prompt (512 each where they are not given)";
        self.run.make_room((self.position + 1).max(self.prompt), 0, file.config()?.context_length, hint)?;
        let (gpu, ceilings) = match (self.described.gbps, self.described.tflops) {
            (Some(gbps), Some(tflops)) => {
                let (flops, dispatch) = (tflops * 1e12, self.described.dispatch_us.unwrap_or(3.0) * 1e-6);
                (block_on(Gpu::described())?, Ceilings { read: gbps * 1e9, flops, int8: flops, dispatch })
            }
            _ => {
                let gpu = self.run.gpu()?;
                let ceilings = block_on(Ceilings::measure(&gpu))?;
                (file.tuned(gpu, &self.run).outline(), ceilings)
            }
        };
        let serial = gpu.profile().lanes;
        let model = block_on(Model::load(&gpu, &file.gguf, |_, _| {}))?;
        let mut options = self.run.options();
        options.chunk = Some(self.prompt);
        let session = model.session(&options)?;
        let passes = [
            Pass::new(session.plan(), Frame { position: self.position, tokens: 1 }, &ceilings, serial),
            Pass::new(session.prefill_plan(), Frame { position: 0, tokens: self.prompt }, &ceilings, serial),
        ];
        if self.json {
            return Ok(output::json(&json!({
                "read_gbps": ceilings.read / 1e9, "f32_tflops": ceilings.flops / 1e12,
                "int8_tops": ceilings.int8 / 1e12, "dispatch_us": ceilings.dispatch * 1e6,
                "passes": passes.iter().map(Pass::json).collect::<Vec<_>>(),
            }))?);
        }
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
        Ok(passes.iter().try_for_each(Pass::show)?)
    }
}

/// A plan's pass over some tokens.
struct Pass<'a> {
    name: &'static str,
    frame: Frame,
    /// What runs, and its seconds at best.
    steps: Vec<(&'a Step, f64)>,
    bytes: u64,
    flops: u64,
    seconds: f64,
}

impl<'a> Pass<'a> {
    fn new(plan: &'a Plan, frame: Frame, ceilings: &Ceilings, serial: bool) -> Pass<'a> {
        let running = plan.steps.iter().filter(|step| step.runs(frame));
        let steps: Vec<_> = running.map(|step| (step, ceilings.seconds(step.cost, frame, serial))).collect();
        Pass {
            name: plan.name,
            frame,
            bytes: steps.iter().map(|(step, _)| step.cost.bytes(frame)).sum(),
            flops: steps.iter().map(|(step, _)| step.cost.flops(frame)).sum(),
            seconds: steps.iter().map(|(_, seconds)| seconds).sum(),
            steps,
        }
    }

    /// The steps outside the blocks, and of those in blocks the first of each kind: most blocks are alike.
    fn show(&self) -> std::io::Result<()> {
        let Frame { position, tokens } = self.frame;
        output::line(format!("\n{}: {} after {position}", self.name, output::counted(tokens.into(), "token")), 0)?;
        let head = ("step", "kernel", "of", "MB", "Mflop", "us at best");
        output::line(
            format!("{:<24} {:<16} {:<38} {:>9} {:>10} {:>10}", head.0, head.1, head.2, head.3, head.4, head.5),
            0,
        )?;
        let (mut shown, mut alike) = (Vec::new(), 0);
        for (step, seconds) in &self.steps {
            let kind = (step.kind(), step.kernel.name, step.note.as_str());
            let is_in_block = step.label.starts_with("blk.");
            if is_in_block && shown.contains(&kind) {
                alike += 1;
                continue;
            }
            if !is_in_block && alike > 0 {
                output::line(format!("(and {alike} steps of blocks that are like those above)"), 0)?;
                alike = 0;
            }
            shown.push(kind);
            output::line(
                format!(
                    "{:<24} {:<16} {:<38} {:>9.2} {:>10.1} {:>10.1}",
                    step.label,
                    step.kernel.name,
                    step.note,
                    step.cost.bytes(self.frame) as f64 / 1e6,
                    step.cost.flops(self.frame) as f64 / 1e6,
                    seconds * 1e6
                ),
                0,
            )?;
        }
        output::line(
            format!(
                "{} dispatches, {}, {:.2} Gflop: {:.3} ms at best, {:.1} tokens/s",
                self.steps.len(),
                output::bytes(self.bytes),
                self.flops as f64 / 1e9,
                self.seconds * 1e3,
                tokens as f64 / self.seconds
            ),
            0,
        )
    }

    fn json(&self) -> serde_json::Value {
        let frame = self.frame;
        let steps = self.steps.iter().map(|(step, seconds)| {
            json!({"step": step.label, "kernel": step.kernel.name, "of": step.note, "bytes": step.cost.bytes(frame),
                   "flops": step.cost.flops(frame), "seconds": seconds})
        });
        json!({"pass": self.name, "position": frame.position, "tokens": frame.tokens, "dispatches": self.steps.len(),
               "bytes": self.bytes, "flops": self.flops, "seconds": self.seconds,
               "tokens_per_s": frame.tokens as f64 / self.seconds, "steps": steps.collect::<Vec<_>>()})
    }
}
