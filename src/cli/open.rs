//! What several commands do first: open the file, the GPU, the model and a session, with their flags.

use super::{Failure, output};
use clap::Args;
use peregrine::tokenizer::Tokenizer;
use peregrine::{Gguf, Gpu, GpuOptions, KvFormat, Model, Session, SessionOptions, block_on};
use std::path::Path;

/// A failure with what it kept us from doing.
#[derive(Debug)]
struct Context {
    what: String,
    source: peregrine::Error,
}

impl std::fmt::Display for Context {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Context {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Opens a model file; without a path, the model that is built in.
pub fn gguf(path: Option<&Path>) -> Result<Gguf, Failure> {
    let opened = match path {
        Some(path) => Gguf::open(path),
        None => built_in(),
    };
    let name = path.map_or_else(|| "the built-in model".into(), |path| path.display().to_string());
    watch_for_cut_files();
    let told = |error| -> Failure {
        match error {
            // the path is in the context already
            peregrine::Error::InFile { path, source } => {
                Context { what: format!("cannot open {}", path.display()), source: *source }
            }
            io @ peregrine::Error::Io { .. } => return io.into(), // names the path too
            source => Context { what: format!("cannot open {name}"), source },
        }
        .into()
    };
    opened.map_err(told)
}

/// Opens a file that must be a model: what else it may be is named before anything is asked of it.
pub fn runnable(path: Option<&Path>) -> Result<Gguf, Failure> {
    let gguf = gguf(path)?;
    peregrine::Config::from_gguf(&gguf)?;
    Ok(gguf)
}

#[cfg(feature = "builtin-model")]
fn built_in() -> peregrine::Result<Gguf> {
    peregrine::builtin::tales()
}

#[cfg(not(feature = "builtin-model"))]
fn built_in() -> peregrine::Result<Gguf> {
    let expected = "the path of a GGUF file (this build has no built-in model)".into();
    Err(peregrine::Error::Argument { what: "MODEL".into(), expected, got: "nothing".into() })
}

/// A mapped file that another program cuts raises SIGBUS, which no error path can catch: at least say so.
#[cfg(unix)]
fn watch_for_cut_files() {
    extern "C" fn on_sigbus(_signal: libc::c_int) {
        let text = b"error: the model file was cut or replaced while it was being read; load it again\n";
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
pub struct RunArgs {
    /// Positions of the context; 0 is the trained length [default: the trained length, at most 4096]
    #[arg(long, value_name = "N")]
    pub ctx: Option<u32>,
    /// Element type of the KV cache
    #[arg(long, value_enum, default_value = "f16")]
    pub kv: Kv,
    /// Compute and cache in f32 throughout
    #[arg(long)]
    pub exact: bool,
    /// GPU adapter, by number or by a part of its name (see `peregrine devices`)
    #[arg(long, value_name = "NAME|INDEX")]
    pub gpu: Option<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
pub enum Kv {
    F16,
    F32,
}

impl RunArgs {
    pub fn open_gpu(&self) -> Result<Gpu, Failure> {
        Ok(block_on(Gpu::with(&GpuOptions { adapter: self.gpu.clone() }))?)
    }

    /// Loads the model with a bar, and opens a session on it.
    pub fn session(&self, gguf: &Gguf) -> Result<Session, Failure> {
        let gpu = self.open_gpu()?;
        log::info!("running on {} ({:?})", gpu.card().name, gpu.card().backend);
        let bar = output::byte_bar("loading");
        let model = block_on(Model::load(&gpu, gguf, |done, total| {
            bar.set_length(total);
            bar.set_position(done);
        }));
        bar.finish_and_clear();
        let model = model.map_err(|source| Context { what: "cannot load the model".into(), source })?;
        let trained = model.config().context_length;
        if let Some(context) = self.ctx.filter(|&context| context > trained) {
            log::warn!(
                "a context of {context} is more than the {trained} that the model was trained for; far answers may be nonsense"
            );
        }
        let kv = match self.kv {
            Kv::F16 => KvFormat::F16,
            Kv::F32 => KvFormat::F32,
        };
        let options = SessionOptions { context: self.ctx, kv, exact: self.exact, chunk: None };
        Ok(model.session(&options)?)
    }
}

pub fn tokenizer(gguf: &Gguf) -> Result<Tokenizer, Failure> {
    Ok(Tokenizer::from_gguf(gguf)?)
}
