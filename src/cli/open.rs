//! What several commands do first: open the file, the GPU, the model and a session, with their flags.

use super::cache::{self, TuningFile, described};
use super::{Failure, output};
use clap::Args;
use peregrine::model::Adapters;
use peregrine::model::tensors::Tensors;
use peregrine::tokenizer::Tokenizer;
use peregrine::tune::tune;
use peregrine::{Config, Error, Gguf, Gpu, GpuOptions, KvFormat, Model, Session, SessionOptions, block_on, wgpu};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long a model is tuned at its first load.
const TUNING: Duration = Duration::from_secs(2);

/// A failure with what it kept us from doing.
#[derive(Debug)]
pub struct Context {
    pub what: String,
    pub source: Box<dyn std::error::Error>,
}

impl std::fmt::Display for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Context {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

/// An opened GGUF file, and what to call it in errors.
pub struct ModelFile {
    pub gguf: Gguf,
    name: String,
}

impl ModelFile {
    /// Opens any GGUF file; without a path, the model that is built in.
    pub fn open(path: Option<&Path>) -> Result<ModelFile, Failure> {
        watch_for_cut_files();
        let name = path.map_or_else(|| "the built-in model".into(), |path| path.display().to_string());
        let opened = match path {
            Some(path) => Gguf::open(path),
            None => built_in(),
        };
        match opened {
            Ok(gguf) => Ok(ModelFile { gguf, name }),
            // these two name the path themselves
            Err(Error::InFile { path, source }) => Err(cannot_load(&path.display().to_string(), *source)),
            Err(error @ (Error::Io { .. } | Error::Argument { .. })) => Err(error.into()),
            Err(error) => Err(cannot_load(&name, error)),
        }
    }

    /// What was made in memory, and what to call it.
    pub fn of(name: &str, gguf: Gguf) -> ModelFile {
        ModelFile { gguf, name: name.into() }
    }

    /// Opens a file that holds a language model which we can run. That is checked before anything else, so that a
    /// projector or an adapter given as the model is told as such.
    pub fn open_model(path: Option<&Path>) -> Result<ModelFile, Failure> {
        let file = ModelFile::open(path)?;
        Tensors::find(&file.gguf, &file.config()?).map_err(|error| cannot_load(&file.name, error))?;
        Ok(file)
    }

    pub fn config(&self) -> Result<Config, Failure> {
        Config::from_gguf(&self.gguf).map_err(|error| cannot_load(&self.name, error))
    }

    pub fn tokenizer(&self) -> Result<Tokenizer, Failure> {
        Tokenizer::from_gguf(&self.gguf).map_err(|error| {
            let what = format!("cannot read the vocabulary of {}", self.name);
            Context { what, source: error.into() }.into()
        })
    }

    /// Loads the model with a bar, and opens a session on it.
    pub fn session(&self, run: &RunArgs) -> Result<Session, Failure> {
        let model = self.model(run.gpu()?, run)?;
        Ok(model.session(&run.options())?)
    }

    /// Loads the model with a bar, under the profile that was tuned for it. A model that was not yet tuned on this device
    /// is, for two seconds; not on a software GPU, where compiling the candidates alone takes longer and the profile of
    /// its class is known to be the best: there only `peregrine tune` does it.
    pub fn model(&self, gpu: Gpu, run: &RunArgs) -> Result<Model, Failure> {
        log::info!("running on {} ({:?})", gpu.card().name, gpu.card().backend);
        let kept = run.tuning_file(&gpu, &self.gguf);
        let found = kept.as_ref().and_then(|file| file.read(&gpu));
        let gpu = found.map_or(gpu.clone(), |profile| gpu.with_profile(profile));
        let bar = output::byte_bar("loading");
        let model = block_on(Model::load_for(&gpu, &self.gguf, &run.options(), |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        }));
        bar.finish_and_clear();
        let model = model.map_err(|error| cannot_load(&self.name, error))?;
        let times = model.load_times();
        let (upload, pipelines) = (times.upload, times.pipelines);
        log::info!("weights up in {upload:.2} s, {} pipelines compiled in {pipelines:.2} s", times.count);
        let trained = model.config().context_length;
        if let Some(context) = run.ctx.filter(|&context| context > trained) {
            log::warn!("a context of {context} is more than the {trained} tokens that the model was trained for");
        }
        let software = gpu.card().device_type == wgpu::DeviceType::Cpu;
        let model = match kept.filter(|_| found.is_none() && !software) {
            Some(file) => tuned(model, &file)?,
            None => model,
        };
        match &run.lora {
            Some(path) => adapted(model, path),
            None => Ok(model),
        }
    }

    /// The device under the profile that was tuned for the model, if it was.
    pub fn tuned(&self, gpu: Gpu, run: &RunArgs) -> Gpu {
        let found = run.tuning_file(&gpu, &self.gguf).and_then(|file| file.read(&gpu));
        found.map_or(gpu.clone(), |profile| gpu.with_profile(profile))
    }
}

/// Tunes for a moment, and keeps what was found: for every later run, so this one's context and cache do not count.
fn tuned(model: Model, file: &TuningFile) -> Result<Model, Failure> {
    let start = Instant::now();
    let tuning = block_on(tune(&model, &SessionOptions::default(), TUNING))?;
    if let Err(error) = file.write(&tuning.trials[tuning.best]) {
        log::info!("{} is not kept: {error}", file.path().display());
    }
    let (found, tried) = (described(tuning.profile()), tuning.trials.len());
    log::info!("tuned in {:.1} s: {found} (of {tried} that were tried)", start.elapsed().as_secs_f64());
    Ok(model.with_profile(tuning.profile()))
}

/// The model with the adapters of a file.
pub fn adapted(model: Model, path: &Path) -> Result<Model, Failure> {
    let read = || -> Result<Adapters, Error> {
        Adapters::from_gguf(model.gpu(), model.config(), model.weights(), &Gguf::open(path)?)
    };
    let named = |error| match error {
        error @ (Error::InFile { .. } | Error::Io { .. }) => error.into(),
        error => cannot_load(&path.display().to_string(), error),
    };
    let adapters = read().map_err(named)?;
    Ok(model.with_adapters(Some(Arc::new(adapters))))
}

fn cannot_load(name: &str, source: Error) -> Failure {
    Context { what: format!("cannot load {name}"), source: source.into() }.into()
}

#[cfg(feature = "builtin-model")]
fn built_in() -> peregrine::Result<Gguf> {
    peregrine::builtin::tales()
}

#[cfg(not(feature = "builtin-model"))]
fn built_in() -> peregrine::Result<Gguf> {
    let expected = "the path of a GGUF file (this build has no built-in model)".into();
    Err(Error::Argument { what: "MODEL".into(), expected, got: "nothing".into() })
}

/// A mapped file that another program cuts raises SIGBUS, which no error path can catch: at least say so.
#[cfg(unix)]
fn watch_for_cut_files() {
    extern "C" fn on_sigbus(_signal: libc::c_int) {
        let text = b"\nerror: the model file was cut or replaced while it was being read; load it again\n";
        // SAFETY: write and _exit are safe in a signal handler; the text is static.
        unsafe {
            libc::write(2, text.as_ptr().cast(), text.len());
            libc::_exit(1);
        }
    }
    let handler: extern "C" fn(libc::c_int) = on_sigbus;
    // SAFETY: the handler only calls functions that are safe in one.
    unsafe { libc::signal(libc::SIGBUS, handler as libc::sighandler_t) };
}

#[cfg(not(unix))]
fn watch_for_cut_files() {}

/// How a model runs.
#[derive(Args, Clone)]
#[command(next_help_heading = "Engine")]
pub struct RunArgs {
    /// Positions of the context; 0 is the trained length [default: the trained length, at most 4096]
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,
    /// Element type of the KV cache
    #[arg(long, value_enum, value_name = "TYPE", default_value = "f16", conflicts_with = "exact")]
    pub kv: Kv,
    /// Compute and cache in f32 throughout; the usual f16 cache, and activations in bytes on some devices, move a logit
    /// by less than 0.1
    #[arg(long)]
    pub exact: bool,
    /// Apply a LoRA adapter: a GGUF file, as `peregrine train lora` and llama.cpp's converter write it
    #[arg(long, value_name = "FILE")]
    pub lora: Option<PathBuf>,
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Neither take what `peregrine tune` found for this model nor tune at its first load; exact runs never do
    #[arg(long)]
    pub no_tune: bool,
}

/// The GPU, and what is kept on disk for it.
#[derive(Args, Clone)]
pub struct DeviceArgs {
    /// GPU adapter, by number or by a part of its name (see `peregrine devices`)
    #[arg(long, value_name = "NAME|INDEX", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    pub gpu: Option<String>,
    /// Keep nothing on disk between runs and read nothing of it: no compiled pipelines, no tuning
    #[arg(long)]
    pub no_cache: bool,
}

impl DeviceArgs {
    pub fn gpu(&self) -> Result<Gpu, Failure> {
        Ok(block_on(Gpu::with(&GpuOptions { adapter: self.gpu.clone(), cache: self.cache() }))?)
    }

    /// The folder for what is kept between runs; None where nothing is.
    pub fn cache(&self) -> Option<PathBuf> {
        cache::folder().filter(|_| !self.no_cache)
    }
}

#[derive(Clone, Copy, PartialEq, clap::ValueEnum)]
pub enum Kv {
    F16,
    F32,
    #[value(name = "q8_0")]
    Q8_0,
}

impl From<Kv> for KvFormat {
    fn from(kv: Kv) -> KvFormat {
        match kv {
            Kv::F16 => KvFormat::F16,
            Kv::F32 => KvFormat::F32,
            Kv::Q8_0 => KvFormat::Q8_0,
        }
    }
}

impl RunArgs {
    pub fn gpu(&self) -> Result<Gpu, Failure> {
        self.device.gpu()
    }

    pub fn options(&self) -> SessionOptions {
        SessionOptions { context: self.ctx, kv: self.kv.into(), exact: self.exact, chunk: None }
    }

    /// The context for a command that knows how many tokens it runs: what is asked for, if they fit; else their number,
    /// but no less than `least`. `hint` tells what to do where they do not fit.
    pub fn make_room(&mut self, tokens: u32, least: u32, trained: u32, hint: &str) -> Result<(), Failure> {
        let context = match self.ctx {
            None => tokens.max(least),
            Some(0) => trained,
            Some(context) => context,
        };
        if tokens > context {
            return Err(Error::ContextFull { context, position: 0, tokens, hint: hint.into() }.into());
        }
        self.ctx = Some(context);
        Ok(())
    }

    /// Where the model's tuning is kept; None where it must not matter: exact runs are the same whatever is tuned.
    fn tuning_file(&self, gpu: &Gpu, gguf: &Gguf) -> Option<TuningFile> {
        let folder = self.device.cache().filter(|_| !self.no_tune && !self.exact)?;
        Some(TuningFile::new(&folder, gpu, gguf))
    }
}
