//! `train`: teaches a model. Flags and a recipe file say the same things: a run's `config.toml` is a recipe for it.

mod begin;
mod events;
mod folder;
mod options;
mod recipe;
mod run;
mod settings;

use super::Failure;
use super::open::{Context, DeviceArgs};
use clap::{Args, Subcommand};
use settings::{Full, Lora, Recipe, Run, Scratch, Settings};
use std::path::PathBuf;

#[derive(Subcommand)]
pub enum Train {
    /// Train adapters on a model that stays as it is, in whatever format
    Lora(WithModel<Lora>),
    /// Train a model's own weights, in f32
    Full(WithModel<Full>),
    /// Train a new model from random weights
    Scratch(Begin<Scratch>),
    /// Train a new model whose embeddings are another model's, through a projection that learns
    WarmStart(WithModel<Scratch>),
}

#[derive(Args)]
pub struct WithModel<S: Args> {
    /// A GGUF file (for a warm start, of the donor); without it, the model that is built in
    model: Option<PathBuf>,
    #[command(flatten)]
    begin: Begin<S>,
}

#[derive(Args)]
pub struct Begin<S: Args> {
    /// Read settings from a recipe; flags given beside it win
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    own: S,
    #[command(flatten)]
    run: Run,
    #[command(flatten)]
    how: How,
}

/// How this one call goes, which is no part of a recipe.
#[derive(Args)]
pub struct How {
    /// The run's folder; without it, the first free of runs/RECIPE-1, runs/RECIPE-2, ..
    #[arg(long, value_name = "DIR", help_heading = "Run")]
    out: Option<PathBuf>,
    /// Go on from the last checkpoint in the run's folder
    #[arg(long, requires = "out", help_heading = "Run")]
    resume: bool,
    /// Print one JSON object a step
    #[arg(long, help_heading = "Run")]
    json: bool,
    #[command(flatten)]
    device: DeviceArgs,
}

impl Train {
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Train::Lora(WithModel { model, begin }) => {
                let own = Settings { model, lora: Some(begin.own), ..Settings::of(Recipe::Lora, begin.run) };
                run::run(own.over(recipe(&begin.config, &begin.how))?, begin.how)
            }
            Train::Full(WithModel { model, begin }) => {
                let own = Settings { model, full: Some(begin.own), ..Settings::of(Recipe::Full, begin.run) };
                run::run(own.over(recipe(&begin.config, &begin.how))?, begin.how)
            }
            Train::WarmStart(WithModel { model, mut begin }) => {
                begin.own.untied.get_or_insert(true); // else it would be refused
                let own = Settings { model, scratch: Some(begin.own), ..Settings::of(Recipe::WarmStart, begin.run) };
                run::run(own.over(recipe(&begin.config, &begin.how))?, begin.how)
            }
            Train::Scratch(begin) => {
                let own = Settings { scratch: Some(begin.own), ..Settings::of(Recipe::Scratch, begin.run) };
                run::run(own.over(recipe(&begin.config, &begin.how))?, begin.how)
            }
        }
    }
}

/// The recipe to begin from, and the flag that named it: what is given, or for a run that goes on its own.
fn recipe(given: &Option<PathBuf>, how: &How) -> Option<(PathBuf, &'static str)> {
    let own = how.out.as_ref().filter(|_| how.resume).map(|folder| folder.join("config.toml"));
    let own = own.filter(|path| path.exists()).map(|path| (path, "--resume"));
    given.clone().map(|path| (path, "--config")).or(own)
}

fn context(what: impl Into<String>, source: impl Into<Failure>) -> Failure {
    Context { what: what.into(), source: source.into() }.into()
}
