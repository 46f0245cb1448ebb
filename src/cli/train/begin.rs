//! What a run begins with: its data, the model that learns, and what is told before the first step.

use super::events::{Curve, Events};
use super::folder::claim;
use super::options::{bad, context_for};
use super::run::Work;
use super::settings::{Recipe, Scratch, Settings};
use super::{How, context};
use crate::cli::open::{ModelFile, adapted};
use crate::cli::{Failure, output, render};
use indicatif::ProgressBar;
use peregrine::chat::ChatTemplate;
use peregrine::sequences::MOST_TOKENS;
use peregrine::train::{
    Batches, Compute, DataKind, DataOptions, Report, Sequence, TrainOptions, Trainer, read_data, split,
    train_vocabulary,
};
use peregrine::{Error, Gguf, Gpu, Model, block_on, wgpu};
use std::path::{Path, PathBuf};

/// What a run begins with.
pub struct Source {
    /// What was loaded, or drawn from the seed.
    pub base: Gguf,
    /// Of a warm start: whose embeddings it takes.
    pub donor: Option<Gguf>,
}

impl Work {
    pub fn begin(settings: Settings, how: &How, folder: PathBuf) -> Result<Work, Failure> {
        let run = &settings.run;
        let Some(data) = &run.data else { unreachable!("checked before") };
        let file = match (settings.recipe, &settings.scratch) {
            (Recipe::Scratch, Some(Scratch { vocab: Some(size), .. })) => {
                let vocabulary = train_vocabulary(data, *size)?;
                let learned = vocabulary.strings("tokenizer.ggml.tokens")?.map_or(0, |tokens| tokens.len());
                if learned < *size as usize {
                    output::tell(format!(
                        "vocabulary: {learned} tokens of the {size}, as the data has no more to learn"
                    ));
                }
                ModelFile::of("the vocabulary that was learned", vocabulary)
            }
            (Recipe::Scratch, Some(scratch)) => ModelFile::open(scratch.tokenizer.as_deref())?,
            _ => ModelFile::open_model(settings.model.as_deref())?,
        };
        let tokenizer = file.tokenizer()?;
        let seed = run.seed.unwrap_or(0);
        let (base, donor) = match (&settings.recipe, &settings.scratch) {
            (Recipe::Scratch | Recipe::WarmStart, Some(scratch)) => {
                let shape = "a new model of such a shape (--blocks, --embedding, --heads, ..) cannot be";
                let new = scratch.model(run.ctx.unwrap_or(512))?.gguf(&file.gguf, seed);
                let new = new.map_err(|error| context(shape, error))?;
                (new, (settings.recipe == Recipe::WarmStart).then_some(file.gguf))
            }
            _ => (file.gguf, None),
        };
        let source = Source { base, donor };
        let config = peregrine::Config::from_gguf(&source.base)?;
        let ctx = context_for(run, &config);
        settings.check_formats(&config)?;
        settings.check_tensors(&config)?;
        if ctx > config.context_length {
            log::warn!("--ctx {ctx} is more than the {} tokens that the model was trained for", config.context_length);
        }

        let template = template(&source.base, run.chat_template.as_deref())?;
        let options = DataOptions {
            kind: run.kind.map(DataKind::from),
            context: ctx,
            pack: !run.no_pack.unwrap_or(false),
            ..DataOptions::default()
        };
        let read = |path: &Path| read_data(path, &options, &tokenizer, template.as_ref());
        let (sequences, report) = read(data)?;
        tell_data(data, &report);
        let (training, validation) = match &run.val {
            Some(path) => {
                let (validation, report) = read(path)?;
                tell_data(path, &report);
                if validation == sequences {
                    log::warn!("validation and training data are the same: the validation loss will tell nothing new");
                }
                (sequences, validation)
            }
            None => split(sequences, run.val_share.unwrap_or(0.0), seed)?,
        };
        let (batch, accum) = (run.batch.unwrap_or(4), run.accum.unwrap_or(1) as u64);
        let tokens = batch.saturating_mul(ctx);
        if tokens > MOST_TOKENS {
            let (what, expected) =
                ("--batch times --ctx".into(), format!("at most {MOST_TOKENS} tokens a pass; see --accum"));
            return Err(Error::Argument { what, expected, got: format!("{batch} x {ctx}") }.into());
        }
        let from = settings.lora.as_ref().and_then(|lora| lora.from.as_ref()).map(Gguf::open).transpose()?;
        let models = std::iter::once(&source.base).chain(&source.donor).chain(&from);
        let fingerprints = (fingerprint(models, [&training, &validation])?, settings.fingerprint()?);
        let counts = (training.len(), validation.len());
        let training = Batches::new(training, batch as usize, seed)?;
        let validation: Vec<Vec<Sequence>> = validation.chunks(batch as usize).map(<[_]>::to_vec).collect();
        let passes = run.epochs.unwrap_or(1).saturating_mul(training.steps_per_epoch());
        let steps = run.steps.unwrap_or(passes.div_ceil(accum));
        if let Some(warm_up) = run.warmup.filter(|&warm_up| warm_up > steps) {
            return Err(bad("--warmup", format!("at most the run's {}", output::counted(steps, "step")), warm_up));
        }

        let options = TrainOptions {
            context: ctx,
            tokens,
            optimizer: settings.optimizer(),
            schedule: settings.schedule(steps),
            clip: Some(run.clip.unwrap_or(1.0)).filter(|&clip| clip > 0.0),
            recompute: run.recompute.unwrap_or(false),
            compute: settings.compute(),
            seed,
        };
        let gpu = how.device.gpu()?;
        if options.compute == Compute::F16 && gpu.profile().matrix.is_none() {
            log::warn!("{} has no matrix hardware that is of use here: it computes in f32", gpu.card().name);
        }
        tell_memory(&gpu, &source, &settings, &options)?;
        let trainer = trainer(&gpu, &source, &settings, options, true).map_err(no_room)?;

        let (folder, lock) = claim(settings.recipe, how, folder)?;
        let path = folder.join("config.toml");
        let text = toml::to_string_pretty(&settings)?;
        if !how.resume {
            peregrine::files::replace(&path, text.as_bytes())?;
        }
        let events = Events::open(&folder.join("events.jsonl"))?;
        let per_epoch = training.steps_per_epoch().div_ceil(accum);
        let mut text = format!(
            "{} to learn from, {} an epoch",
            output::counted(counts.0 as u64, "sequence"),
            output::counted(per_epoch, "step")
        );
        if counts.1 > 0 {
            text += &format!("; {} for validation", counts.1);
        }
        output::tell(text);
        let mut work = Work {
            settings,
            folder,
            _lock: lock,
            source,
            tokenizer,
            trainer,
            training,
            validation,
            steps,
            accum,
            events,
            losses: (Curve::new(), Curve::new()),
            fingerprints,
        };
        work.take_up(how.resume)?;
        Ok(work)
    }
}

/// The chat template that is given, or the model's. That this one cannot be used matters to chats alone, so it is told and no
/// failure.
fn template(gguf: &Gguf, given: Option<&str>) -> Result<Option<ChatTemplate>, Failure> {
    if given.is_some() {
        return render::template(Some(gguf), (given, None), (None, None)).map(Some);
    }
    if gguf.get("tokenizer.chat_template").is_none() {
        return Ok(None);
    }
    let template = ChatTemplate::from_gguf(gguf, None);
    Ok(template.inspect_err(|error| log::warn!("no chats can be learned from: {error}")).ok())
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
            let (model, lora_options) = (block_on(Model::load(gpu, base, progress))?, lora.options()?);
            match &lora.from {
                Some(path) => Trainer::lora_further(&adapted(model, path)?, lora_options.dropout, options)?,
                None => Trainer::lora(&model, &lora_options, options)?,
            }
        }
        (_, full) => {
            let model = match donor {
                Some(donor) => block_on(Model::load_warm_start(gpu, base, donor, options.seed, progress))?,
                None => block_on(Model::load_masters(gpu, base, progress))?,
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

/// A number that tells models and data apart from others: of the models their metadata, and of every tensor the beginning and the
/// end, as a large one would take long to read; of the data all.
fn fingerprint<'a>(models: impl Iterator<Item = &'a Gguf>, data: [&[Sequence]; 2]) -> Result<u64, Error> {
    let mut bytes = Vec::new();
    for model in models {
        for (key, value) in model.metadata() {
            bytes.extend_from_slice(format!("{key} {value:?}").as_bytes());
        }
        for tensor in model.tensors() {
            bytes.extend_from_slice(tensor.name.as_bytes());
            let data = model.data(tensor)?;
            bytes.extend_from_slice(&data[..data.len().min(256)]);
            bytes.extend_from_slice(&data[data.len().saturating_sub(256)..]);
        }
    }
    for sequence in data.into_iter().flatten() {
        let numbers = sequence.ids.iter().chain(&sequence.labels);
        numbers.for_each(|number| bytes.extend_from_slice(&number.to_le_bytes()));
    }
    Ok(peregrine::files::hash(&bytes))
}

fn tell_data(path: &Path, report: &Report) {
    let Report { kind, sequences, tokens, counted_labels, cut, dropped } = *report;
    let mut text = format!(
        "{}: {}, {tokens} tokens in {}, {counted_labels} with a loss",
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
