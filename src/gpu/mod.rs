//! Gpu: one wgpu device that the engine works on, made here or handed over by the app.

mod adapter;
#[cfg(target_arch = "wasm32")]
mod ahead;
#[cfg(not(target_arch = "wasm32"))]
mod pipeline_file;
mod self_test;
mod transfer;

pub(crate) use transfer::{ReadBacks, now};

pub use adapter::{GpuCard, GpuOptions, Matrix};

use crate::error::{Error, Result};
use crate::kernel::{Kernel, KernelKey};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A device and its queue. Cloning is cheap and shares both.
#[derive(Clone)]
pub struct Gpu {
    inner: Arc<Inner>,
}

struct Inner {
    card: GpuCard,
    device: wgpu::Device,
    queue: wgpu::Queue,
    profile: Profile,
    kernels: Arc<Mutex<Kernels>>,
    /// Where compiled pipelines outlive the program.
    #[cfg(not(target_arch = "wasm32"))]
    pipeline_file: Option<Arc<pipeline_file::PipelineFile>>,
    /// The first error or loss that the device reported outside a call.
    trouble: Arc<Mutex<Option<Trouble>>>,
    /// Whether buffers are made and written in name only.
    outline: bool,
    /// Bytes written to buffers since the queue was last waited for.
    staged: AtomicU64,
    /// Bytes of the buffers made so far, given back or not.
    asked: AtomicU64,
}

/// Pipelines by what they are made of: each is compiled once per device, under whatever profile.
type Kernels = HashMap<KernelKey, Arc<Mutex<Option<Arc<Kernel>>>>>;

enum Trouble {
    Lost(String),
    Error(String),
}

/// How kernels are shaped for a class of devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Profile {
    /// One lane a row and nothing shared: what a processor that emulates a GPU runs fastest.
    pub lanes: bool,
    /// Reductions through subgroups instead of shared memory.
    pub subgroups: bool,
    /// With `lanes`: subgroups have exactly eight lanes, which load what all of them need together.
    pub eights: bool,
    /// Decode multiplies quantized weights with activations in bytes (unless it must be exact).
    pub int8: bool,
    /// Prefill multiplies on matrix hardware (unless it must be exact).
    pub matrix: Option<Matrix>,
    /// Tokens of a prefill pass, where the session's options do not say.
    pub chunk: u32,
}

impl Gpu {
    /// The best adapter of this machine: discrete before integrated before software.
    pub async fn new() -> Result<Gpu> {
        Gpu::with(&GpuOptions::default()).await
    }

    /// A device on a chosen adapter.
    ///
    /// # Errors
    /// [`Error::NoGpu`] if there is no adapter, [`Error::Argument`] if there is none as asked for, [`Error::Gpu`] if the
    /// driver refuses the device.
    pub async fn with(options: &GpuOptions) -> Result<Gpu> {
        #[cfg_attr(not(target_arch = "wasm32"), expect(unused_mut, reason = "native adapters tell it all"))]
        let (mut card, adapter) = adapter::choose(options).await?;
        let mut wanted = adapter::WANTED_FEATURES;
        wanted.set(wgpu::Features::PIPELINE_CACHE, options.cache.is_some());
        let (device, queue) = adapter
            .request_device(&wgpu::DeviceDescriptor {
                label: Some("peregrine"),
                required_features: adapter.features() & wanted,
                required_limits: adapter::wanted_limits(&adapter.limits()),
                // SAFETY: of wgpu's experiments we use matrices only, by a kernel that is tested before it is trusted.
                experimental_features: unsafe { wgpu::ExperimentalFeatures::enabled() },
                ..Default::default()
            })
            .await
            .map_err(|e| Error::Gpu { what: card.name.clone(), message: e.to_string() })?;
        #[cfg(target_arch = "wasm32")]
        {
            card.subgroups = adapter::has_subgroups(&device);
        }
        #[cfg_attr(target_arch = "wasm32", expect(unused_mut, reason = "a browser caches by itself"))]
        let mut gpu = Gpu::assemble(card, device, queue);
        gpu.watch();
        #[cfg(not(target_arch = "wasm32"))]
        if let (Some(folder), Some(inner)) = (&options.cache, Arc::get_mut(&mut gpu.inner)) {
            let file = pipeline_file::PipelineFile::open(folder, &inner.device, &inner.card);
            inner.pipeline_file = file.map(Arc::new);
        }
        gpu.tested().await
    }

    /// The same device with what must be tested before it is trusted: matrix hardware. [`Gpu::with`] does it itself.
    pub async fn tested(self) -> Result<Gpu> {
        let Some(matrix) = self.card().matrix else { return Ok(self) };
        let candidate = self.with_profile(Profile { matrix: Some(matrix), ..self.profile() });
        match self_test::matrix_agrees(&candidate, matrix).await {
            Ok(true) => return Ok(candidate),
            Ok(false) => log::warn!("{}: matrix hardware gives wrong results and is left alone", self.card().name),
            Err(e) => log::warn!("{}: matrix hardware does not work and is left alone: {e}", self.card().name),
        }
        Ok(self)
    }

    /// A GPU that is not there, with what a discrete one usually has: an [`Gpu::outline`], to plan models on.
    ///
    /// # Errors
    /// [`Error::Gpu`] if wgpu cannot make its device that does nothing.
    #[cfg(not(target_arch = "wasm32"))]
    pub async fn described() -> Result<Gpu> {
        let (card, adapter) = adapter::described().await?;
        let device = adapter.request_device(&wgpu::DeviceDescriptor::default()).await;
        let (device, queue) = device.map_err(|e| Error::Gpu { what: card.name.clone(), message: e.to_string() })?;
        Ok(Gpu::assemble(card, device, queue).outline())
    }

    /// Works on the app's own device. The app keeps its error and device-lost handlers; give the device at least the
    /// limits that [`Gpu::limits_for`] names, or large models will not fit. [`Gpu::tested`] turns on matrix hardware.
    pub fn from_device(adapter: &wgpu::Adapter, device: wgpu::Device, queue: wgpu::Queue) -> Gpu {
        let mut card = GpuCard::of(adapter, 0);
        card.limits = device.limits();
        card.f16 = device.features().contains(wgpu::Features::SHADER_F16);
        card.subgroups = device.features().contains(wgpu::Features::SUBGROUP);
        let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SUBGROUP;
        card.matrix = card.matrix.filter(|_| device.features().contains(needed));
        card.why = "handed over by the app".into();
        Gpu::assemble(card, device, queue)
    }

    /// The limits and features that an app should ask for when it makes a device to share.
    pub fn limits_for(adapter: &wgpu::Adapter) -> (wgpu::Features, wgpu::Limits) {
        (adapter.features() & adapter::WANTED_FEATURES, adapter::wanted_limits(&adapter.limits()))
    }

    /// Every GPU adapter of this machine, the one that [`Gpu::new`] takes marked as chosen.
    pub async fn cards() -> Vec<GpuCard> {
        adapter::cards().await
    }

    fn assemble(card: GpuCard, device: wgpu::Device, queue: wgpu::Queue) -> Gpu {
        let lanes = card.device_type == wgpu::DeviceType::Cpu;
        let subgroups = card.subgroups;
        let eights = lanes && subgroups && card.subgroup_size == (8, 8);
        // With eights f32 is as fast; without, integer dot products are three times as fast (SwiftShader).
        let chunk = if lanes { 128 } else { 512 };
        let profile = Profile { lanes, subgroups, eights, int8: lanes && !eights, matrix: None, chunk };
        let inner = Inner {
            card,
            device,
            queue,
            profile,
            kernels: Arc::default(),
            #[cfg(not(target_arch = "wasm32"))]
            pipeline_file: None,
            trouble: Arc::default(),
            staged: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            outline: false,
        };
        Gpu { inner: Arc::new(inner) }
    }

    /// Keeps what the device reports between calls; [`Gpu::check`] turns it into an error.
    fn watch(&self) {
        let trouble = self.inner.trouble.clone();
        let keep = move |what: Trouble| {
            if let Ok(mut first) = trouble.lock() {
                first.get_or_insert(what);
            }
        };
        let keep_lost = keep.clone();
        self.inner.device.set_device_lost_callback(move |reason, message| {
            keep_lost(Trouble::Lost(format!("{reason:?}: {message}")));
        });
        self.inner
            .device
            .on_uncaptured_error(Arc::new(move |error: wgpu::Error| keep(Trouble::Error(error.to_string()))));
    }

    /// The same device under another profile: what `tune` found, or for tests and measurements.
    pub fn with_profile(&self, profile: Profile) -> Gpu {
        let Inner { card, device, queue, trouble, kernels, .. } = &*self.inner;
        let inner = Inner {
            card: card.clone(),
            device: device.clone(),
            queue: queue.clone(),
            profile,
            kernels: kernels.clone(),
            #[cfg(not(target_arch = "wasm32"))]
            pipeline_file: self.inner.pipeline_file.clone(),
            trouble: trouble.clone(),
            staged: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            outline: self.inner.outline,
        };
        Gpu { inner: Arc::new(inner) }
    }

    /// The same device, whose buffers from now on have no room and take no data, and whose kernels are not compiled: for
    /// planning a model without loading it. What is planned so does not run.
    pub fn outline(&self) -> Gpu {
        let mut gpu = self.with_profile(self.inner.profile);
        if let Some(inner) = Arc::get_mut(&mut gpu.inner) {
            inner.outline = true;
            inner.kernels = Arc::default();
        }
        gpu
    }

    /// Bytes of the buffers that were asked for so far: on an outline, the memory that what was planned on it would take.
    pub fn asked(&self) -> u64 {
        self.inner.asked.load(Ordering::Relaxed)
    }

    pub(crate) fn is_outline(&self) -> bool {
        self.inner.outline
    }

    /// The same device with a smaller binding limit, so that tests can split small tensors.
    pub fn with_max_binding(&self, bytes: u64) -> Gpu {
        let mut gpu = self.with_profile(self.inner.profile);
        if let Some(inner) = Arc::get_mut(&mut gpu.inner) {
            inner.card.limits.max_storage_buffer_binding_size = bytes;
        }
        gpu
    }

    pub fn card(&self) -> &GpuCard {
        &self.inner.card
    }

    pub fn profile(&self) -> Profile {
        self.inner.profile
    }

    pub fn device(&self) -> &wgpu::Device {
        &self.inner.device
    }

    pub fn queue(&self) -> &wgpu::Queue {
        &self.inner.queue
    }

    /// The largest storage buffer that one binding can show.
    pub fn max_binding(&self) -> u64 {
        let limits = &self.inner.card.limits;
        limits.max_storage_buffer_binding_size.min(limits.max_buffer_size)
    }

    /// The error or device loss that was reported since the last check.
    pub fn check(&self) -> Result<()> {
        let mut trouble = lock(&self.inner.trouble);
        match &*trouble {
            None => Ok(()),
            Some(Trouble::Lost(message)) => Err(Error::DeviceLost { message: message.clone() }),
            Some(Trouble::Error(message)) => {
                let error = Error::Gpu { what: "the device".into(), message: message.clone() };
                *trouble = None; // told once; a lost device stays lost
                Err(error)
            }
        }
    }

    /// The pipeline made of these files and constants, compiled on first use.
    pub fn kernel(&self, key: &KernelKey) -> Result<Arc<Kernel>> {
        let slot = lock(&self.inner.kernels).entry(key.clone()).or_default().clone();
        // Whoever has the slot compiles; another thread that wants the same kernel waits for it, and for no other.
        let mut slot = lock(&slot);
        if let Some(kernel) = &*slot {
            return Ok(kernel.clone());
        }
        let kernel = Arc::new(Kernel::compile(self, key)?);
        *slot = Some(kernel.clone());
        Ok(kernel)
    }

    /// What the kernels asked for so far are made of, in no order.
    pub(crate) fn kernel_keys(&self) -> Vec<KernelKey> {
        lock(&self.inner.kernels).keys().cloned().collect()
    }

    /// The driver's own cache of compiled pipelines, where it is kept on disk.
    pub(crate) fn pipeline_cache(&self) -> Option<&wgpu::PipelineCache> {
        #[cfg(not(target_arch = "wasm32"))]
        return self.inner.pipeline_file.as_ref().map(|file| &file.cache);
        #[cfg(target_arch = "wasm32")]
        return None;
    }

    /// Writes the compiled pipelines to disk, if [`GpuOptions::cache`] names a folder and there are new ones. A session
    /// does it when its plans are built.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn save_pipelines(&self) {
        if let Some(file) = &self.inner.pipeline_file {
            file.save();
        }
    }
}

/// What a thread that panicked left behind is whole all the same: every change here is one assignment.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}
