//! Model: a GGUF file on a GPU, ready for sessions.

use super::adapters::Adapters;
use super::config::Config;
use super::tensors::Tensors;
use super::weights::Weights;
use crate::error::Result;
use crate::gguf::Gguf;
use crate::gpu::{Gpu, Profile};
use crate::kernel::KernelKey;
use crate::session::{Session, SessionOptions};
use std::sync::Arc;

/// A loaded model. Cloning is cheap and shares the weights; any number of sessions may use them.
#[derive(Clone)]
pub struct Model {
    gpu: Gpu,
    inner: Arc<ModelInner>,
    adapters: Option<Arc<Adapters>>,
}

struct ModelInner {
    masters: bool,
    config: Config,
    weights: Weights,
    times: LoadTimes,
}

/// Where the time of loading went: both ran side by side. A browser does not measure it.
#[derive(Debug, Clone, Copy, Default)]
pub struct LoadTimes {
    /// Seconds until the weights were on the GPU.
    pub upload: f64,
    /// Seconds until the last pipeline was compiled.
    pub pipelines: f64,
    /// Pipelines that the plans need.
    pub count: usize,
}

impl Model {
    /// Checks the file and sends its weights to the GPU, as they are. `progress(done, total)` counts bytes.
    /// On native platforms threads meanwhile compile the pipelines of a session with default options.
    ///
    /// # Errors
    /// Whatever is wrong with the file: kind, architecture, metadata, a missing or misshapen tensor; or a GPU limit.
    pub async fn load(gpu: &Gpu, gguf: &Gguf, progress: impl FnMut(u64, u64)) -> Result<Model> {
        Model::load_for(gpu, gguf, &SessionOptions::default(), progress).await
    }

    /// [`Model::load`], with the pipelines of sessions with these options.
    pub async fn load_for(
        gpu: &Gpu,
        gguf: &Gguf,
        options: &SessionOptions,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Model> {
        let config = Config::from_gguf(gguf)?;
        let tensors = Tensors::find(gguf, &config)?;
        tensors.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        #[cfg(target_arch = "wasm32")]
        let (weights, times) = {
            // the browser compiles while the weights come
            let keys = wanted_kernels(gpu, gguf, &config, tensors.clone(), options).await.unwrap_or_default();
            let ahead = gpu.compile_ahead(keys);
            let weights = Weights::upload(gpu, gguf, &config, tensors, false, &mut progress).await?;
            gpu.compiled(ahead).await?;
            (weights, LoadTimes::default())
        };
        #[cfg(not(target_arch = "wasm32"))]
        let (weights, times) = beside::upload(gpu, gguf, &config, tensors, options, &mut progress)?;
        gpu.wait()?; // an upload that failed is told here
        Ok(Model::of(gpu, config, weights, false, times))
    }

    fn of(gpu: &Gpu, config: Config, weights: Weights, masters: bool, times: LoadTimes) -> Model {
        let inner = ModelInner { masters, config, weights, times };
        Model { gpu: gpu.clone(), inner: Arc::new(inner), adapters: None }
    }

    /// The file's weights decoded to f32 and laid out so that they can learn: 4 bytes each on the GPU. A
    /// [`Trainer`](crate::train::Trainer) changes them in place; sessions made from the model use them as they are then.
    ///
    /// # Errors
    /// Those of [`Model::load`].
    pub async fn load_masters(gpu: &Gpu, gguf: &Gguf, mut progress: impl FnMut(u64, u64)) -> Result<Model> {
        let config = Config::from_gguf(gguf)?;
        let tensors = Tensors::find(gguf, &config)?;
        tensors.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        let weights = Weights::upload(gpu, gguf, &config, tensors, true, &mut progress).await?;
        gpu.wait()?;
        Ok(Model::of(gpu, config, weights, true, LoadTimes::default()))
    }

    /// [`Model::load_masters`] of a new model whose embedding is a donor's, which stays as it is, through a projection that
    /// learns, drawn from a seed. Both have one vocabulary; the new model has an output head of its own.
    ///
    /// # Errors
    /// Those of [`Model::load`], of both files; [`Error::Argument`](crate::Error::Argument) if they do not go together.
    pub async fn load_warm_start(
        gpu: &Gpu,
        gguf: &Gguf,
        donor: &Gguf,
        seed: u64,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Model> {
        let config = Config::from_gguf(gguf)?;
        let tensors = Tensors::find(gguf, &config)?;
        let width = Config::from_gguf(donor)?.embedding_length;
        let projection = crate::train::projection(config.embedding_length, width, seed);
        let weights = Weights::warm_start(gpu, gguf, &config, tensors, donor, &projection, &mut progress).await?;
        gpu.wait()?;
        Ok(Model::of(gpu, config, weights, true, LoadTimes::default()))
    }

    /// Whether the weights can change: [`Model::load_masters`].
    pub(crate) fn is_masters(&self) -> bool {
        self.inner.masters
    }

    /// The same weights with adapters, which sessions made from the result apply; None: without.
    pub fn with_adapters(&self, adapters: Option<Arc<Adapters>>) -> Model {
        Model { adapters, ..self.clone() }
    }

    pub fn adapters(&self) -> Option<&Adapters> {
        self.adapters.as_deref()
    }

    /// The same weights under another profile of the device.
    pub fn with_profile(&self, profile: Profile) -> Model {
        Model { gpu: self.gpu.with_profile(profile), ..self.clone() }
    }

    /// The same weights on an outline of the device: for plans that do not run.
    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn outline(&self) -> Model {
        Model { gpu: self.gpu.outline(), ..self.clone() }
    }

    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    pub fn weights(&self) -> &Weights {
        &self.inner.weights
    }

    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    pub fn load_times(&self) -> LoadTimes {
        self.inner.times
    }

    /// A new sequence with a KV cache of its own.
    pub fn session(&self, options: &SessionOptions) -> Result<Session> {
        Session::new(self, options)
    }
}

/// The kernels of a session with these options, found by planning one. What cannot be planned is told when the session is
/// made.
async fn wanted_kernels(
    gpu: &Gpu,
    gguf: &Gguf,
    config: &Config,
    tensors: Tensors<'_>,
    options: &SessionOptions,
) -> Result<Vec<KernelKey>> {
    let outline = gpu.outline();
    let weights = Weights::upload(&outline, gguf, config, tensors, false, &mut |_, _| ()).await?;
    Model::of(&outline, config.clone(), weights, false, LoadTimes::default()).session(options)?;
    Ok(outline.kernel_keys())
}

/// Uploading and compiling side by side.
#[cfg(not(target_arch = "wasm32"))]
mod beside {
    use super::*;
    use pollster::block_on;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;
    use std::time::Instant;

    /// Threads that compile. Drivers gain little from more.
    const MOST_THREADS: usize = 4;

    pub fn upload(
        gpu: &Gpu,
        gguf: &Gguf,
        config: &Config,
        tensors: Tensors,
        options: &SessionOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(Weights, LoadTimes)> {
        let start = Instant::now();
        thread::scope(|scope| {
            let planned = tensors.clone();
            let compiling = scope.spawn(move || {
                let count = compile(gpu, gguf, config, planned, options).unwrap_or(0);
                (count, start.elapsed().as_secs_f64())
            });
            let weights = block_on(Weights::upload(gpu, gguf, config, tensors, false, progress))?;
            gpu.wait()?;
            let upload = start.elapsed().as_secs_f64();
            let (count, pipelines) = compiling.join().unwrap_or_default();
            Ok((weights, LoadTimes { upload, pipelines, count }))
        })
    }

    /// Compiles what the plans of such a session will want. What cannot be planned or compiled is told when the session
    /// is made, not here.
    fn compile(gpu: &Gpu, gguf: &Gguf, config: &Config, tensors: Tensors, options: &SessionOptions) -> Result<usize> {
        if gpu.is_outline() {
            return Ok(0);
        }
        let keys = block_on(wanted_kernels(gpu, gguf, config, tensors, options))?;
        let next = AtomicUsize::new(0);
        let work = || {
            while let Some(key) = keys.get(next.fetch_add(1, Ordering::Relaxed)) {
                let _ = gpu.kernel(key);
            }
        };
        thread::scope(|scope| {
            for _ in 1..thread::available_parallelism().map_or(1, |count| count.get().min(MOST_THREADS)) {
                scope.spawn(work);
            }
            work();
        });
        Ok(keys.len())
    }
}
