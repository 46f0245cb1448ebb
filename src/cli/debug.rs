//! `debug`: the plans of a model, and the first step whose values differ from the CPU reference.

use super::Failure;
use super::open::{self, RunArgs};
use super::prompt::PromptArgs;
use clap::{Args, Subcommand};
use peregrine::block_on;
use peregrine::compare::compare;
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Debug {
    /// Print the steps of a decoded token and of a chunk of the prompt
    Plan(PlanArgs),
    /// Run one pass step by step on the GPU and on the CPU, and find the first step that differs
    Compare(CompareArgs),
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
    #[arg(long, value_name = "R", default_value_t = 1e-3)]
    tolerance: f32,
    /// Print every step, not only the summary
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    run: RunArgs,
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
                let session = args.run.session(&open::runnable(Some(&args.model))?)?;
                print!("{}\n{}", session.plan(), session.prefill_plan());
                Ok(())
            }
            Debug::Compare(args) => args.compare(),
        }
    }
}

impl CompareArgs {
    fn compare(mut self) -> Result<(), Failure> {
        self.run.exact = true; // the reference is f32 throughout
        let gguf = open::runnable(Some(&self.model))?;
        let ids = self.prompt.ids(&gguf, Some("Once upon a time"))?;
        let mut session = self.run.session(&gguf)?;
        let steps = block_on(compare(&mut session, &gguf, &ids))?;
        let differs =
            |step: &&peregrine::compare::StepDifference| step.relative.is_nan() || step.relative > self.tolerance;
        for step in steps.iter().filter(|step| self.all || differs(step)) {
            let mark = if differs(&step) { "DIFFERS" } else { "ok" };
            println!("{mark:<8}{:<24} {:<12} {:.2e}", step.label, step.kernel, step.relative);
        }
        match steps.iter().find(differs) {
            None => {
                let worst = steps.iter().map(|step| step.relative).fold(0.0, f32::max);
                println!(
                    "{} steps agree with the reference, the worst to {worst:.1e} of its largest value",
                    steps.len()
                );
                Ok(())
            }
            Some(step) => Err(Differs(format!(
                "the first step that differs is {} (kernel {}): token {}, column {}: got {}, expected {}",
                step.label, step.kernel, step.token, step.column, step.got, step.want
            ))
            .into()),
        }
    }
}
