//! A training run, from its settings to what it leaves in its folder: `config.toml`, `events.jsonl`, `checkpoint.gguf`,
//! `loss.svg`, and the adapters or the model.

use super::begin::Source;
use super::events::{Curve, Events, losses};
use super::folder::folder;
use super::options::{bad, format};
use super::recipe::same_run;
use super::settings::{Recipe, Settings};
use super::{How, context};
use crate::cli::{Failure, output};
use indicatif::{HumanDuration, ProgressBar, ProgressStyle};
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::train::{Batches, Loss, Place, Sequence, Trainer, loss_svg};
use peregrine::{Error, Gguf, Model, SessionOptions, block_on};
use serde_json::{Value, json};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Steps in a row whose loss is not finite, after which a run gives up.
const MOST_SKIPPED: u64 = 20;
/// Tokens of a sample.
const SAMPLE: usize = 48;
/// Without a terminal there is no bar, but a line now and then.
const BETWEEN_LINES: Duration = Duration::from_secs(10);
/// The exit code of what a signal ended, as shells have it for Ctrl-C.
const INTERRUPTED: i32 = 130;

/// All that a run works with.
pub struct Work {
    pub settings: Settings,
    pub folder: PathBuf,
    /// Keeps other runs out of the folder.
    pub _lock: File,
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
    /// Tell base and data, and the settings, apart from others.
    pub fingerprints: (u64, u64),
}

pub fn run(settings: Settings, how: How) -> Result<(), Failure> {
    let folder = folder(settings.recipe, &how)?;
    let settings = settings.absolute();
    settings.check()?;
    if how.resume {
        same_run(&settings, &folder)?;
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let bar = bar();
    let (flag, shown) = (interrupted.clone(), bar.clone());
    // a second one ends the program at once
    ctrlc::set_handler(move || {
        if flag.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED);
        }
        let text =
            "stopping after this step; once more ends at once, without what was learned since the last checkpoint";
        if shown.is_hidden() { output::tell(text) } else { shown.println(text) }
    })?;
    take_as_ctrl_c();
    let mut work = Work::begin(settings, &how, folder)?;
    let outcome = work.train(&how, &interrupted, &bar);
    let status = match &outcome {
        Ok(()) if interrupted.load(Ordering::Relaxed) => "interrupted",
        Ok(()) => "finished",
        Err(_) => "failed",
    };
    let step = work.trainer.steps();
    work.events.add("run_end", json!({ "status": status, "step": step, "skipped": work.trainer.skipped() }))?;
    outcome?;
    if interrupted.load(Ordering::Relaxed) {
        std::process::exit(INTERRUPTED);
    }
    Ok(())
}

/// What else asks a program to end counts as Ctrl-C, unless whoever began it has it ignored, as nohup does.
#[cfg(unix)]
fn take_as_ctrl_c() {
    extern "C" fn interrupt(_signal: libc::c_int) {
        // SAFETY: raise is safe in a signal handler.
        unsafe { libc::raise(libc::SIGINT) };
    }
    let handler: extern "C" fn(libc::c_int) = interrupt;
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the handler only calls what is safe in one.
        unsafe {
            if libc::signal(signal, handler as libc::sighandler_t) == libc::SIG_IGN {
                libc::signal(signal, libc::SIG_IGN);
            }
        }
    }
}

#[cfg(not(unix))]
fn take_as_ctrl_c() {}

impl Work {
    /// Goes on from the checkpoint, if there is one to go on from, and tells the run's beginning.
    pub fn take_up(&mut self, resume: bool) -> Result<(), Failure> {
        let checkpoint = self.checkpoint();
        if resume && checkpoint.exists() {
            let broken = |error| context(format!("no run can go on from {}", checkpoint.display()), error);
            let place = Gguf::open(&checkpoint).and_then(|gguf| self.trainer.restore(&gguf)).map_err(broken)?;
            if place.settings != self.fingerprints.1 {
                let expected = format!("a checkpoint of the settings in {}", self.folder.join("config.toml").display());
                return Err(bad(
                    "--resume",
                    expected,
                    "one of others: config.toml was changed, or it is another run's",
                ));
            }
            if place.data != self.fingerprints.0 {
                let got = "others: the model's file, the data or the validation data were changed";
                return Err(bad("--resume", "the model and data that the run began with", got));
            }
            self.training.set_position(place.position);
        } else if resume {
            output::tell("there is no checkpoint yet: the run begins anew");
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

    fn train(&mut self, how: &How, interrupted: &AtomicBool, bar: &ProgressBar) -> Result<(), Failure> {
        let save_every = self.settings.run.save_every.unwrap_or(100);
        let evaluate_every = self.settings.run.val_every.unwrap_or(save_every);
        let first = self.trainer.steps();
        let (names, folder) = (self.settings.recipe.name(), self.folder.display());
        let parameters = self.trainer.parameters().count();
        output::tell(format!("{names}: {parameters} parameters learn, steps {first} to {}, in {folder}", self.steps));
        if first >= self.steps {
            output::tell("all steps were taken before; what they gave is written once more");
        }
        if first == 0 && self.steps > 0 {
            self.evaluate()?; // what there is to better
        }
        bar.set_length(self.steps);
        bar.set_position(first);
        bar.reset_eta();
        let (start, mut told, mut print) = (Instant::now(), Instant::now(), how.json);
        let (mut in_a_row, mut trained) = (0, 0);
        while self.trainer.steps() < self.steps && !interrupted.load(Ordering::Relaxed) {
            let step = self.trainer.steps();
            let batches: Vec<Vec<Sequence>> = (0..self.accum).map(|_| self.training.next_batch()).collect();
            let began = Instant::now();
            let loss = block_on(self.trainer.step(&batches))?;
            let tokens: usize = batches.iter().flatten().map(|sequence| sequence.ids.len()).sum();
            let rate = tokens as f64 / began.elapsed().as_secs_f64();
            trained += tokens;
            let line = self.told(step, &loss, rate)?;
            if print && let Err(error) = output::json(&line) {
                print = false; // a run of hours does not end because nobody reads it any more
                bar.suspend(|| {
                    output::tell(format!("standard output fails ({error}); the run goes on, see events.jsonl"))
                });
            }
            let done = step + 1;
            let now = format!("loss {:.4}, {rate:.0} tokens/s", loss.loss);
            if bar.is_hidden()
                && !how.json
                && (done == first + 1 || done == self.steps || told.elapsed() > BETWEEN_LINES)
            {
                told = Instant::now();
                let left = start.elapsed().as_secs_f64() / (done - first) as f64 * (self.steps - done) as f64;
                let left = HumanDuration(Duration::from_secs_f64(left));
                let (lr, norm) = (loss.rate, loss.grad_norm);
                output::tell(format!(
                    "step {done}/{}: {now}, lr {lr:.1e}, grad norm {norm:.3}, {left} left",
                    self.steps
                ));
            }
            bar.set_message(now + ", ");
            bar.set_position(done);
            in_a_row = if loss.applied { 0 } else { in_a_row + 1 };
            if in_a_row == MOST_SKIPPED {
                bar.finish_and_clear();
                let what = format!("{MOST_SKIPPED} steps in a row whose loss or gradients are not finite");
                let hint = "Begin a new run with a smaller --lr or a longer --warmup".into();
                return Err(Error::Unsupported { what, hint }.into());
            }
            if done.is_multiple_of(evaluate_every) && done < self.steps {
                bar.suspend(|| self.evaluate())?;
            }
            if done.is_multiple_of(save_every) && done < self.steps && in_a_row == 0 {
                self.save()?;
            }
        }
        bar.finish_and_clear();
        let seconds = start.elapsed().as_secs_f64();
        if self.trainer.steps() > first || !self.checkpoint().exists() {
            if !interrupted.load(Ordering::Relaxed) {
                self.evaluate()?;
            }
            self.save()?;
        }
        self.tell_outcome(first, seconds, trained);
        if interrupted.load(Ordering::Relaxed) {
            let (step, folder) = (self.trainer.steps(), self.folder.display());
            output::tell(format!(
                "stopped at step {step} of {}; `peregrine train {} --out \"{folder}\" --resume` goes on",
                self.steps,
                self.settings.recipe.name()
            ));
            return Ok(());
        }
        self.export()
    }

    /// What the steps of this call came to.
    fn tell_outcome(&self, first: u64, seconds: f64, trained: usize) {
        let steps = self.trainer.steps() - first;
        if steps == 0 {
            return;
        }
        // single batches differ much
        let mean = |points: &[(u64, f64)]| points.iter().map(|point| point.1).sum::<f64>() / points.len() as f64;
        let (training, validation) = (&self.losses.0, &self.losses.1);
        let some = training.len().div_ceil(10).min(50);
        let (begin, end) = (mean(&training[..some]), mean(&training[training.len() - some..]));
        let mut text = format!(
            "{} in {}, {:.0} tokens/s: loss {begin:.4} to {end:.4}",
            output::counted(steps, "step"),
            HumanDuration(Duration::from_secs_f64(seconds)),
            trained as f64 / seconds
        );
        if let (Some(begin), Some(end)) = (validation.first(), validation.last()) {
            text += &format!(", validation loss {:.4} to {:.4}", begin.1, end.1);
        }
        if self.trainer.skipped() > 0 {
            text += &format!("; {} skipped, as not finite", output::counted(self.trainer.skipped(), "step"));
        }
        output::tell(text);
        let best = validation.iter().map(|point| point.1).fold(f64::INFINITY, f64::min);
        if let Some(end) = validation.last().filter(|end| end.1 > best * 1.02) {
            log::warn!("the validation loss was {best:.4} before it rose to {:.4}: the last step is kept", end.1);
        }
    }

    /// Notes a step and appends it to the events; as JSON.
    fn told(&mut self, step: u64, loss: &Loss, tokens_per_s: f64) -> Result<Value, Failure> {
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
        self.events.add("step", line.clone())?;
        Ok(line)
    }

    /// The loss on data that is not learned, and a sample.
    fn evaluate(&mut self) -> Result<(), Failure> {
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
        let (data, settings) = self.fingerprints;
        self.trainer.save(&path, Place { position: self.training.position(), data, settings })?;
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
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        let command = match (self.settings.recipe, &self.settings.model) {
            (Recipe::Lora, model) => {
                let model = model.as_deref().map_or(String::new(), |model| quoted(model) + " ");
                format!("{model}--lora {}", quoted(&self.folder.join("adapter.gguf")))
            }
            _ => quoted(&self.folder.join("model.gguf")),
        };
        output::tell(format!("to try it: peregrine generate {command} -p TEXT"));
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

/// The bar of a run's steps, which shows itself with the first of them.
fn bar() -> ProgressBar {
    let bar = ProgressBar::new(0);
    let template = "step {pos}/{len} [{wide_bar}] {msg}{eta} left";
    let style = ProgressStyle::with_template(template).expect("a valid template");
    bar.set_style(style.progress_chars("=> "));
    bar
}
