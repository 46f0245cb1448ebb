//! A training run, from its settings to what it leaves in its folder: `config.toml`, `events.jsonl`, `checkpoint.gguf`,
//! `loss.svg`, and the adapters or the model.

use super::How;
use super::begin::{Source, folder};
use super::events::{Curve, Events, losses};
use super::recipe::same_run;
use super::settings::{Recipe, Settings, format};
use crate::cli::{Failure, output};
use indicatif::{ProgressBar, ProgressStyle};
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::train::{Batches, Loss, Sequence, Trainer, loss_svg};
use peregrine::{Error, Gguf, Model, SessionOptions, block_on};
use serde_json::json;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Steps in a row whose loss is not finite, after which a run gives up.
const MOST_SKIPPED: u64 = 20;
/// Tokens of a sample.
const SAMPLE: usize = 48;

/// All that a run works with.
pub struct Work {
    pub settings: Settings,
    pub folder: PathBuf,
    pub source: Source,
    pub tokenizer: Tokenizer,
    pub trainer: Trainer,
    pub training: Batches,
    pub validation: Vec<Vec<Sequence>>,
    pub steps: u64,
    pub accum: u64,
    pub events: Events,
    /// Of training and of validation.
    pub losses: (Curve, Curve),
    /// Tells base and data apart from others.
    pub data: u64,
}

pub fn run(settings: Settings, how: How) -> Result<(), Failure> {
    settings.check()?;
    let folder = folder(&settings, &how)?;
    if how.resume {
        same_run(&settings, &folder)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let flag = interrupted.clone();
    // a second Ctrl-C ends the program at once
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(130);
        }
    })?;
    let mut work = Work::begin(settings, &how, folder)?;
    let outcome = work.train(&how, &interrupted);
    let status = match &outcome {
        Ok(()) if interrupted.load(Ordering::Relaxed) => "interrupted",
        Ok(()) => "finished",
        Err(_) => "failed",
    };
    let step = work.trainer.steps();
    work.events.add("run_end", json!({ "status": status, "step": step, "skipped": work.trainer.skipped() }))?;
    outcome
}

impl Work {
    /// Goes on from the checkpoint, if there is one to go on from, and tells the run's beginning.
    pub fn take_up(&mut self, resume: bool) -> Result<(), Failure> {
        let checkpoint = self.checkpoint();
        if resume && checkpoint.exists() {
            let place = self.trainer.restore(&Gguf::open(&checkpoint)?)?;
            if place.data != self.data {
                let (what, got) = ("--resume".into(), "others: the model's file or the data were changed".into());
                return Err(Error::Argument {
                    what,
                    expected: "the model and data that the run began with".into(),
                    got,
                }
                .into());
            }
            self.training.set_position(place.position);
        }
        let step = self.trainer.steps();
        if resume {
            self.losses = losses(&self.folder.join("events.jsonl"), step);
        }
        let card = self.trainer.model().gpu().card();
        let fields = json!({
            "recipe": self.settings.recipe.name(), "step": step, "steps": self.steps,
            "parameters": self.trainer.parameters().count(), "device": card.name, "version": env!("CARGO_PKG_VERSION"),
        });
        let what = if self.events.is_new() { "run_start" } else { "run_resume" };
        Ok(self.events.add(what, fields)?)
    }

    fn checkpoint(&self) -> PathBuf {
        self.folder.join("checkpoint.gguf")
    }

    fn train(&mut self, how: &How, interrupted: &AtomicBool) -> Result<(), Failure> {
        let save_every = self.settings.run.save_every.unwrap_or(100);
        let look_every = self.settings.run.val_every.unwrap_or(save_every);
        let first = self.trainer.steps();
        let (names, folder) = (self.settings.recipe.name(), self.folder.display());
        let parameters = self.trainer.parameters().count();
        output::tell(format!("{names}: {parameters} parameters learn, steps {first} to {}, in {folder}", self.steps));
        if first == 0 && self.steps > 0 {
            self.look()?; // what there is to better
        }
        let bar = bar(first, self.steps);
        let mut in_a_row = 0;
        while self.trainer.steps() < self.steps && !interrupted.load(Ordering::Relaxed) {
            let step = self.trainer.steps();
            let batches: Vec<Vec<Sequence>> = (0..self.accum).map(|_| self.training.next_batch()).collect();
            let began = Instant::now();
            let loss = block_on(self.trainer.step(&batches))?;
            let tokens: usize = batches.iter().flatten().map(|sequence| sequence.ids.len()).sum();
            let rate = tokens as f64 / began.elapsed().as_secs_f64();
            self.told(step, &loss, rate, how.json)?;
            bar.set_position(step + 1);
            bar.set_message(format!("loss {:.4}, {rate:.0} tokens/s", loss.loss));
            in_a_row = if loss.applied { 0 } else { in_a_row + 1 };
            if in_a_row == MOST_SKIPPED {
                bar.finish_and_clear();
                let what = format!("{MOST_SKIPPED} steps in a row whose loss or gradients are not finite");
                let hint = "Begin a new run with a smaller --lr or a longer --warmup".into();
                return Err(Error::Unsupported { what, hint }.into());
            }
            let done = step + 1;
            if done.is_multiple_of(look_every) && done < self.steps {
                bar.suspend(|| self.look())?;
            }
            if done.is_multiple_of(save_every) && done < self.steps && in_a_row == 0 {
                self.save()?;
            }
        }
        bar.finish_and_clear();
        if self.trainer.steps() > first || !self.checkpoint().exists() {
            if !interrupted.load(Ordering::Relaxed) {
                self.look()?;
            }
            self.save()?;
        }
        if interrupted.load(Ordering::Relaxed) {
            let (step, folder) = (self.trainer.steps(), self.folder.display());
            output::tell(format!(
                "stopped at step {step} of {}; `peregrine train {} --out {folder} --resume` goes on",
                self.steps,
                self.settings.recipe.name()
            ));
            return Ok(());
        }
        self.export()
    }

    /// A step, to the events and to whoever reads standard output.
    fn told(&mut self, step: u64, loss: &Loss, tokens_per_s: f64, print: bool) -> Result<(), Failure> {
        let Loss { loss, grad_norm, rate, applied, .. } = *loss;
        // what is not finite is null in JSON
        let mut line = json!({
            "step": step, "loss": loss, "lr": rate, "grad_norm": grad_norm,
            "tokens_per_s": (tokens_per_s * 10.0).round() / 10.0,
        });
        if !applied {
            line["skipped"] = json!(true);
        }
        self.losses.0.push((step, loss));
        if print {
            output::json(&line)?;
        }
        Ok(self.events.add("step", line)?)
    }

    /// The loss on data that is not learned, and a sample.
    fn look(&mut self) -> Result<(), Failure> {
        let step = self.trainer.steps();
        if !self.validation.is_empty() {
            let (mut sum, mut counted) = (0.0, 0);
            for batch in &self.validation {
                let labels: usize = batch.iter().map(Sequence::counted).sum();
                sum += block_on(self.trainer.loss(batch))? * labels as f64;
                counted += labels;
            }
            let loss = sum / counted as f64;
            self.losses.1.push((step, loss));
            output::tell(format!("step {step}: validation loss {loss:.4}"));
            self.events.add("validation", json!({ "step": step, "loss": loss }))?;
        }
        if let Some(prompt) = &self.settings.run.sample {
            let text = sample(self.trainer.model(), &self.tokenizer, prompt)?;
            output::tell(format!("step {step}: {prompt}{text}"));
            self.events.add("sample", json!({ "step": step, "prompt": prompt, "text": text }))?;
        }
        Ok(())
    }

    fn save(&mut self) -> Result<(), Failure> {
        let path = self.checkpoint();
        self.trainer.save(&path, self.training.position(), self.data)?;
        self.events.add("checkpoint", json!({ "step": self.trainer.steps(), "file": "checkpoint.gguf" }))?;
        let title = format!("{} of {}", self.settings.recipe.name(), self.folder.display());
        let path = self.folder.join("loss.svg");
        let svg = loss_svg(&title, &self.losses.0, &self.losses.1);
        Ok(std::fs::write(&path, svg).map_err(|source| Error::Io { path, source })?)
    }

    /// What the run was for.
    fn export(&mut self) -> Result<(), Failure> {
        let mut written = Vec::new();
        let settings = &self.settings;
        let mut model = |name: &str, flag: &str, format_name: &str| {
            let path = self.folder.join(name);
            let Source { base, donor } = &self.source;
            self.trainer.export_model(base, donor.as_ref(), &path, format(flag, format_name)?)?;
            written.push(path);
            Ok::<(), Failure>(())
        };
        match (settings.recipe, &settings.lora, &settings.full, &settings.scratch) {
            (Recipe::Lora, Some(lora), ..) => {
                let (path, peft) = (self.folder.join("adapter.gguf"), self.folder.join("peft"));
                self.trainer.export_adapter(&path)?;
                let base = settings.model.as_deref().map_or("the built-in model".into(), |m| m.display().to_string());
                self.trainer.export_peft(&peft, &base)?;
                if let Some(format) = &lora.merge {
                    model("model.gguf", "--merge", format)?;
                }
                written.extend([path, peft]);
            }
            (_, _, Some(full), _) => model("model.gguf", "--format", full.format.as_deref().unwrap_or("base"))?,
            (_, _, _, Some(scratch)) => model("model.gguf", "--format", scratch.format.as_deref().unwrap_or("base"))?,
            _ => {}
        }
        for path in &written {
            output::tell(format!("wrote {}", path.display()));
            self.events.add("export", json!({ "step": self.trainer.steps(), "file": path.display().to_string() }))?;
        }
        Ok(())
    }
}

/// What the model says after a text, by its most likely tokens.
fn sample(model: &Model, tokenizer: &Tokenizer, prompt: &str) -> Result<String, Failure> {
    let ids = tokenizer.encode(prompt.as_bytes(), &Encode::default())?;
    let context = Some((ids.len() + SAMPLE) as u32);
    let mut session = model.session(&SessionOptions { context, exact: true, ..SessionOptions::default() })?;
    block_on(session.append(&ids))?;
    let mut stream = tokenizer.stream();
    let mut text = String::new();
    for _ in 0..SAMPLE {
        let id = block_on(session.greedy())?;
        if tokenizer.is_end(id) {
            break;
        }
        text += &stream.push(id);
        if session.position() == session.context() {
            break;
        }
        block_on(session.append(&[id]))?;
    }
    Ok(text)
}

fn bar(first: u64, steps: u64) -> ProgressBar {
    let bar = ProgressBar::new(steps).with_position(first);
    let template = "step {pos}/{len} [{wide_bar}] {msg}, {eta} left";
    let style = ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar.reset_eta();
    bar
}
