//! A training run, from its settings to what it leaves in its folder: `config.toml`, `events.jsonl`, `checkpoint.gguf`,
//! `loss.svg`, and the adapters or the model.

use super::events::{Curve, Events, losses};
use super::settings::{Recipe, Scratch, Settings, context_for, format};
use super::{How, context};
use crate::cli::open::ModelFile;
use crate::cli::{Failure, cache, output};
use indicatif::{ProgressBar, ProgressStyle};
use peregrine::chat::ChatTemplate;
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::train::{
    Batches, DataOptions, Loss, Report, Sequence, TrainOptions, Trainer, loss_svg, read_data, split, train_vocabulary,
};
use peregrine::{Error, Gguf, Gpu, GpuOptions, Model, SessionOptions, block_on, wgpu};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Steps in a row whose loss is not finite, after which a run gives up.
const MOST_SKIPPED: u64 = 20;
/// Tokens of a sample.
const SAMPLE: usize = 48;

/// All that a run works with.
struct Work {
    settings: Settings,
    folder: PathBuf,
    source: Source,
    tokenizer: Tokenizer,
    trainer: Trainer,
    training: Batches,
    validation: Vec<Vec<Sequence>>,
    steps: u64,
    accum: u64,
    events: Events,
    /// Of training and of validation.
    losses: (Curve, Curve),
    /// Tells base and data apart from others.
    data: u64,
}

/// What a run begins with.
struct Source {
    /// What was loaded, or drawn from the seed.
    base: Gguf,
    /// Of a warm start: whose embeddings it takes.
    donor: Option<Gguf>,
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

/// The run's folder: new, or that of the run to go on with.
fn folder(settings: &Settings, how: &How) -> Result<PathBuf, Failure> {
    let free = |n: &u32| !Path::new("runs").join(format!("{}-{n}", settings.recipe.name())).exists();
    let folder = match &how.out {
        Some(folder) => folder.clone(),
        None => Path::new("runs").join(format!("{}-{}", settings.recipe.name(), (1..).find(free).unwrap_or(1))),
    };
    let begun = folder.join("config.toml").exists();
    let full = std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some());
    if full && !how.resume {
        let holds = if begun { "which holds a run: --resume goes on with it" } else { "which holds other files" };
        let (expected, got) = ("a new or empty folder".into(), format!("{}, {holds}", folder.display()));
        return Err(Error::Argument { what: "--out".into(), expected, got }.into());
    }
    if !begun && how.resume {
        let (expected, got) = ("the folder of a run".into(), format!("{}, which has no config.toml", folder.display()));
        return Err(Error::Argument { what: "--resume".into(), expected, got }.into());
    }
    Ok(folder)
}

/// Refuses to go on with a run under other settings: it would not be the same run.
fn same_run(settings: &Settings, folder: &Path) -> Result<(), Failure> {
    let path = folder.join("config.toml");
    let text = std::fs::read_to_string(&path).map_err(|source| Error::Io { path: path.clone(), source })?;
    let mut before: toml::Table =
        toml::from_str(&text).map_err(|error| context(format!("cannot read {}", path.display()), error))?;
    let mut now: toml::Table = toml::from_str(&toml::to_string(settings)?)?; // as it would be read
    // how often it saves and looks, and what it writes at the end, changes nothing of what is learned
    for table in [&mut before, &mut now] {
        for (part, keys) in [("run", &["save-every", "val-every", "sample"][..]), ("lora", &["merge"])] {
            if let Some(toml::Value::Table(part)) = table.get_mut(part) {
                keys.iter().for_each(|key| drop(part.remove(*key)));
            }
        }
        for part in ["full", "scratch"] {
            if let Some(toml::Value::Table(part)) = table.get_mut(part) {
                part.remove("format");
            }
        }
    }
    if before == now {
        return Ok(());
    }
    let [was, is] = [before, now].map(|table| table.to_string().lines().map(str::to_string).collect::<Vec<_>>());
    let only = |a: &[String], b: &[String]| {
        let lines: Vec<&str> = a.iter().filter(|line| !b.contains(line)).map(String::as_str).collect();
        if lines.is_empty() { "nothing".to_string() } else { lines.join(", ") }
    };
    Err(Error::Argument {
        what: "--resume".into(),
        expected: format!("the settings of {}: {}", path.display(), only(&was, &is)),
        got: only(&is, &was),
    }
    .into())
}

impl Work {
    fn begin(settings: Settings, how: &How, folder: PathBuf) -> Result<Work, Failure> {
        let run = &settings.run;
        let gpu = GpuOptions { adapter: how.gpu.clone(), cache: cache::folder().filter(|_| !how.no_cache) };
        let Some(data) = &run.data else { unreachable!("checked before") };
        let file = match (settings.recipe, &settings.scratch) {
            (Recipe::Scratch, Some(Scratch { vocab: Some(size), .. })) => {
                ModelFile::of("the vocabulary that was learned", train_vocabulary(data, *size)?)
            }
            (Recipe::Scratch, Some(scratch)) => ModelFile::open(scratch.tokenizer.as_deref())?,
            _ => ModelFile::open_model(settings.model.as_deref())?,
        };
        let tokenizer = file.tokenizer()?;
        let seed = run.seed.unwrap_or(0);
        let (base, donor) = match (&settings.recipe, &settings.scratch) {
            (Recipe::Scratch | Recipe::WarmStart, Some(scratch)) => {
                let new = scratch.model(run.ctx.unwrap_or(512))?.gguf(&file.gguf, seed)?;
                (new, (settings.recipe == Recipe::WarmStart).then_some(file.gguf))
            }
            _ => (file.gguf, None),
        };
        let source = Source { base, donor };
        let config = peregrine::Config::from_gguf(&source.base)?;
        let ctx = context_for(run, &config);
        settings.check_formats(&config)?;

        let template = ChatTemplate::from_gguf(&source.base, None).ok();
        let options = DataOptions { context: ctx, pack: !run.no_pack.unwrap_or(false), ..DataOptions::default() };
        let read = |path: &Path| read_data(path, &options, &tokenizer, template.as_ref());
        let (sequences, report) = read(data)?;
        tell_data(data, &report);
        let (training, validation) = match &run.val {
            Some(path) => {
                let (validation, report) = read(path)?;
                tell_data(path, &report);
                (sequences, validation)
            }
            None => split(sequences, run.val_share.unwrap_or(0.0), seed)?,
        };
        let (batch, accum) = (run.batch.unwrap_or(4), run.accum.unwrap_or(1) as u64);
        let tokens = batch.saturating_mul(ctx);
        if tokens > u16::MAX as u32 {
            let (what, expected) = ("--batch times --ctx".into(), "at most 65535 tokens a pass; see --accum".into());
            return Err(Error::Argument { what, expected, got: format!("{batch} x {ctx}") }.into());
        }
        let data = fingerprint(&source.base, &training);
        let training = Batches::new(training, batch as usize, seed)?;
        let validation: Vec<Vec<Sequence>> = validation.chunks(batch as usize).map(<[_]>::to_vec).collect();
        let passes = run.epochs.unwrap_or(1).saturating_mul(training.steps_per_epoch());
        let steps = run.steps.unwrap_or(passes.div_ceil(accum));

        let options = TrainOptions {
            context: ctx,
            tokens,
            optimizer: settings.optimizer(),
            schedule: settings.schedule(steps),
            clip: Some(run.clip.unwrap_or(1.0)).filter(|&clip| clip > 0.0),
            recompute: run.recompute.unwrap_or(false),
            seed,
        };
        let gpu = block_on(Gpu::with(&gpu))?;
        tell_memory(&gpu, &source, &settings, &options)?;
        let trainer = trainer(&gpu, &source, &settings, options, true).map_err(no_room)?;

        std::fs::create_dir_all(&folder).map_err(|source| Error::Io { path: folder.clone(), source })?;
        let path = folder.join("config.toml");
        let text = toml::to_string_pretty(&settings)?;
        if !how.resume {
            peregrine::files::replace(&path, text.as_bytes()).map_err(|source| Error::Io { path, source })?;
        }
        let events = Events::open(&folder.join("events.jsonl"))?;
        let losses = (Curve::new(), Curve::new());
        let mut work = Work {
            settings,
            folder,
            source,
            tokenizer,
            trainer,
            training,
            validation,
            steps,
            accum,
            events,
            losses,
            data,
        };
        work.take_up(how.resume)?;
        Ok(work)
    }

    /// Goes on from the checkpoint, if there is one to go on from, and tells the run's beginning.
    fn take_up(&mut self, resume: bool) -> Result<(), Failure> {
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

fn trainer(
    gpu: &Gpu,
    Source { base, donor }: &Source,
    settings: &Settings,
    options: TrainOptions,
    bar: bool,
) -> Result<Trainer, Failure> {
    let bar = if bar { output::byte_bar("loading") } else { ProgressBar::hidden() };
    let progress = |done, total| {
        bar.set_length(total);
        bar.set_position(done);
    };
    let trainer = match (&settings.lora, &settings.full) {
        (Some(lora), _) if settings.recipe == Recipe::Lora => {
            let model = block_on(Model::load(gpu, base, progress))?;
            Trainer::lora(&model, &lora.options()?, options)?
        }
        (_, full) => {
            let model = match donor {
                Some(donor) => Model::load_warm_start(gpu, base, donor, options.seed, progress)?,
                None => Model::load_masters(gpu, base, progress)?,
            };
            let chosen = |name: &str| full.as_ref().is_none_or(|full| full.chooses(name));
            Trainer::full(&model, chosen, options)?
        }
    };
    bar.finish_and_clear();
    Ok(trainer)
}

/// What to do where the device has no room.
fn no_room(failure: Failure) -> Failure {
    match failure.downcast_ref() {
        Some(Error::Limit { .. }) => context("there is no room: try --recompute, a smaller --batch or --ctx", failure),
        Some(Error::Gpu { message, .. }) if message.contains("allocated") => {
            context("there is no room: try --recompute, a smaller --batch or --ctx", failure)
        }
        _ => failure,
    }
}

/// A number that tells base and data apart from others: of the base the beginning of every tensor, of the data all.
fn fingerprint(base: &Gguf, sequences: &[Sequence]) -> u64 {
    let mut bytes = Vec::new();
    for tensor in base.tensors() {
        bytes.extend_from_slice(tensor.name.as_bytes());
        let data = base.data(tensor);
        bytes.extend_from_slice(&data[..data.len().min(256)]);
    }
    for sequence in sequences {
        let numbers = sequence.ids.iter().chain(&sequence.labels);
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    }
    peregrine::files::hash(&bytes)
}

fn tell_data(path: &Path, report: &Report) {
    let Report { kind, sequences, tokens, counted_labels, cut, dropped } = *report;
    let mut text = format!(
        "{}: {}, {} of {tokens} tokens, {counted_labels} to learn",
        path.display(),
        kind.name(),
        output::counted(sequences as u64, "sequence")
    );
    if cut > 0 {
        text += &format!("; {cut} cut at the context");
    }
    if dropped > 0 {
        text += &format!("; {dropped} left out, as they hold nothing to learn");
    }
    output::tell(text);
}

/// Says what the run will take before it takes it, and warns where it is more than there is.
fn tell_memory(gpu: &Gpu, source: &Source, settings: &Settings, options: &TrainOptions) -> Result<(), Failure> {
    let outline = gpu.outline();
    let planned = trainer(&outline, source, settings, options.clone(), false).map_err(no_room)?;
    let (all, learning) = (outline.asked(), planned.parameters().count() * 4);
    let state = learning * (1 + options.optimizer.moments() as u64);
    let model = planned.model().weights().bytes();
    let lora = if settings.recipe == Recipe::Lora { learning } else { 0 };
    let rest = all.saturating_sub(model + state + lora);
    output::tell(format!(
        "memory: {} in all: the model {}, what is learned with gradients and moments {}, activations {}",
        output::bytes(all),
        output::bytes(model),
        output::bytes(state + lora),
        output::bytes(rest)
    ));
    let shared = matches!(gpu.card().device_type, wgpu::DeviceType::Cpu | wgpu::DeviceType::IntegratedGpu);
    if let Some(free) = free_memory().filter(|&free| shared && free < all) {
        output::tell(format!(
            "warning: {} of memory are free; --recompute, a smaller --batch or --ctx take less",
            output::bytes(free)
        ));
    }
    Ok(())
}

/// Memory that the system could give, where it says so.
fn free_memory() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok().map(|kib| kib * 1024)
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
