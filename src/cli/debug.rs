//! `debug`: the plans of a model, the first step whose values differ from the CPU reference, and models of random weights.

use super::open::{ModelFile, RunArgs};
use super::prompt::PromptArgs;
use super::synth::Synth;
use super::{Failure, output};
use clap::{Args, Subcommand};
use peregrine::block_on;
use peregrine::compare::{StepDifference, compare};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Debug {
    /// Print the steps of a decoded token and of a chunk of the prompt
    Plan(PlanArgs),
    /// Run one pass step by step on the GPU and on the CPU, and find the first step that differs
    Compare(CompareArgs),
    /// Write a file of random weights in the shape of a real model, to measure speed with
    Synth(Synth),
}

#[derive(Args)]
pub struct PlanArgs {
    /// A GGUF file
    model: PathBuf,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Args)]
pub struct CompareArgs {
    /// A GGUF file
    model: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// Differences up to this share of a step's largest value count as equal
    #[arg(long, value_name = "R", default_value_t = 1e-3, value_parser = zero_or_more)]
    tolerance: f32,
    /// Print every step, not the first that differs alone
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    run: RunArgs,
}

/// With NaN nothing would differ.
fn zero_or_more(text: &str) -> Result<f32, String> {
    text.parse().ok().filter(|value| *value >= 0.0).ok_or("expected a number, 0 or more".into())
}

/// A step differs: the command fails.
#[derive(Debug)]
struct Differs(String);

impl std::fmt::Display for Differs {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Differs {}

impl Debug {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Debug::Plan(args) => {
                let session = ModelFile::open_model(Some(&args.model))?.session(&args.run)?;
                Ok(output::show(format!("{}\n{}", session.plan(), session.prefill_plan()))?)
            }
            Debug::Compare(args) => args.compare(),
            Debug::Synth(args) => args.run(),
        }
    }
}

impl CompareArgs {
    fn compare(mut self) -> Result<(), Failure> {
        self.run.exact = true; // the reference is f32 throughout
        let file = ModelFile::open_model(Some(&self.model))?;
        let prompt = self.prompt.read(&file, Some("Once upon a time"))?;
        let mut session = file.session(&self.run)?;
        let steps = block_on(compare(&mut session, &file.gguf, &prompt.ids))?;
        let differs = |step: &StepDifference| step.relative.is_nan() || step.relative > self.tolerance;
        for step in steps.iter().filter(|_| self.all) {
            let mark = if differs(step) { "DIFFERS" } else { "ok" };
            output::line(format!("{mark:<8}{:<24} {:<16} {:.2e}", step.label, step.kernel, step.relative), 0)?;
        }
        let Some(step) = steps.iter().find(|step| differs(step)) else {
            let worst = steps.iter().map(|step| step.relative).fold(0.0, f32::max);
            let text = format!("{} steps agree with the reference; the worst is {worst:.1e} off", steps.len());
            return Ok(output::line(text + " (of the step's largest value)", 0)?);
        };
        let count = steps.iter().filter(|step| differs(step)).count();
        let StepDifference { label, kernel, token, column, got, want, .. } = step;
        let text = format!("{count} of {} steps differ, the first is {label} (kernel {kernel})", steps.len());
        Err(Differs(format!("{text}: token {token}, column {column}: got {got}, expected {want}")).into())
    }
}
