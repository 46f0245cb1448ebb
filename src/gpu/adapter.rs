//! Which GPU adapter to take, and what to ask of it.

use crate::error::{Error, Result};
use std::path::PathBuf;

/// Features that are used where they exist; none is needed.
pub(super) const WANTED_FEATURES: wgpu::Features = wgpu::Features::SUBGROUP
    .union(wgpu::Features::SHADER_F16)
    .union(wgpu::Features::TIMESTAMP_QUERY)
    .union(wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX);

/// Invocations a workgroup that our kernels use at most.
const MAX_INVOCATIONS: u32 = 256;
/// Bytes that shaders/matmul_matrix.wgsl shares at most.
const MATRIX_SHARED: u32 = 2 * 64 * 40 * 2 + 64 * 64 * 4;

/// Which adapter to take.
#[derive(Debug, Clone, Default)]
pub struct GpuOptions {
    /// A number from [`super::Gpu::cards`], or a part of the adapter's name; None takes the best.
    pub adapter: Option<String>,
    /// A folder for compiled pipelines, which then need not be compiled again at the next start; made when needed.
    /// None: nothing is kept. Works where the driver gives them away (Vulkan); others keep them by themselves.
    pub cache: Option<PathBuf>,
}

/// Small matrices that a subgroup multiplies in hardware. shaders/matrix/ has a file for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matrix {
    /// 16 x 16 halves, sums in f32 (NVIDIA's tensor cores).
    Half16,
    /// 8 x 8 f32 (Apple's simdgroup matrices).
    Float8,
    /// 8 x 8 f32 without hardware, for tests.
    Emulated,
    /// The same with halves.
    EmulatedHalves,
}

impl Matrix {
    /// The best that the adapter has. Our kernel counts on four subgroups in 128 lanes.
    fn of(adapter: &wgpu::Adapter) -> Option<Matrix> {
        use wgpu::CooperativeScalarType::{F16, F32};
        let (info, features) = (adapter.get_info(), adapter.features());
        let needed = wgpu::Features::EXPERIMENTAL_COOPERATIVE_MATRIX | wgpu::Features::SUBGROUP;
        let subgroups_of_32 = (info.subgroup_min_size, info.subgroup_max_size) == (32, 32);
        let room = adapter.limits().max_compute_workgroup_storage_size >= MATRIX_SHARED;
        if !features.contains(needed) || !subgroups_of_32 || !room {
            return None;
        }
        let all = adapter.cooperative_matrix_properties();
        let has = |size, ab, c| {
            all.iter().any(|p| [p.m_size, p.n_size, p.k_size] == [size; 3] && p.ab_type == ab && p.cr_type == c)
        };
        match () {
            () if features.contains(wgpu::Features::SHADER_F16) && has(16, F16, F32) => Some(Matrix::Half16),
            () if has(8, F32, F32) => Some(Matrix::Float8),
            () => None,
        }
    }
}

/// What we know of a GPU adapter.
#[derive(Debug, Clone)]
pub struct GpuCard {
    pub index: usize,
    pub name: String,
    pub backend: wgpu::Backend,
    pub device_type: wgpu::DeviceType,
    pub driver: String,
    pub limits: wgpu::Limits,
    pub f16: bool,
    pub subgroups: bool,
    /// Smallest and largest subgroup.
    pub subgroup_size: (u32, u32),
    /// Matrix hardware that wgpu lets us use.
    pub matrix: Option<Matrix>,
    /// Whether [`super::Gpu::new`] takes this one.
    pub chosen: bool,
    /// Why it is chosen, or not.
    pub why: String,
}

impl GpuCard {
    pub(super) fn of(adapter: &wgpu::Adapter, index: usize) -> GpuCard {
        let info = adapter.get_info();
        GpuCard {
            index,
            name: info.name,
            backend: info.backend,
            device_type: info.device_type,
            driver: format!("{} {}", info.driver, info.driver_info).trim().to_string(),
            limits: adapter.limits(),
            f16: adapter.features().contains(wgpu::Features::SHADER_F16),
            subgroups: adapter.features().contains(wgpu::Features::SUBGROUP),
            subgroup_size: (info.subgroup_min_size, info.subgroup_max_size),
            matrix: Matrix::of(adapter),
            chosen: false,
            why: String::new(),
        }
    }

    /// A short name for files about this adapter: the same for adapters of one model, whatever their driver.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn id(&self) -> String {
        format!("{:016x}", crate::files::hash(format!("{} {:?}", self.name, self.backend).as_bytes()))
    }

    /// Lower is better: discrete, integrated, others, software; then native APIs before DX12.
    fn rank(&self) -> (u32, u32, usize) {
        let kind = match self.device_type {
            wgpu::DeviceType::DiscreteGpu => 0,
            wgpu::DeviceType::IntegratedGpu => 1,
            wgpu::DeviceType::VirtualGpu => 2,
            wgpu::DeviceType::Other => 3,
            wgpu::DeviceType::Cpu => 4,
        };
        let backend = if self.backend == wgpu::Backend::Dx12 { 1 } else { 0 };
        (kind, backend, self.index)
    }

    fn kind(&self) -> &'static str {
        match self.device_type {
            wgpu::DeviceType::DiscreteGpu => "a discrete GPU",
            wgpu::DeviceType::IntegratedGpu => "an integrated GPU",
            wgpu::DeviceType::VirtualGpu => "a virtual GPU",
            wgpu::DeviceType::Other => "a GPU of unknown kind",
            wgpu::DeviceType::Cpu => "a software GPU (on the processor)",
        }
    }
}

pub(super) fn wanted_limits(adapter: &wgpu::Limits) -> wgpu::Limits {
    let default = wgpu::Limits::default();
    wgpu::Limits {
        max_buffer_size: adapter.max_buffer_size,
        max_storage_buffer_binding_size: adapter.max_storage_buffer_binding_size,
        max_compute_workgroup_storage_size: adapter.max_compute_workgroup_storage_size.min(32 << 10),
        max_compute_invocations_per_workgroup: adapter.max_compute_invocations_per_workgroup.min(MAX_INVOCATIONS),
        ..default.or_worse_values_from(adapter)
    }
}

fn instance() -> wgpu::Instance {
    // GL has too few storage buffers and no subgroups; Vulkan, Metal, DX12 and the browser are enough.
    wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::PRIMARY,
        flags: if cfg!(debug_assertions) { wgpu::InstanceFlags::VALIDATION } else { wgpu::InstanceFlags::empty() },
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    })
}

async fn adapters() -> Vec<(GpuCard, wgpu::Adapter)> {
    let instance = instance();
    #[cfg(not(target_arch = "wasm32"))]
    let adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    #[cfg(target_arch = "wasm32")] // a browser shows one adapter, on request
    let adapters: Vec<_> = instance
        .request_adapter(&wgpu::RequestAdapterOptions {
            power_preference: wgpu::PowerPreference::HighPerformance,
            ..Default::default()
        })
        .await
        .into_iter()
        .collect();
    let mut found: Vec<_> = adapters
        .into_iter()
        .filter(|adapter| adapter.get_downlevel_capabilities().flags.contains(wgpu::DownlevelFlags::COMPUTE_SHADERS))
        .enumerate()
        .map(|(i, adapter)| (GpuCard::of(&adapter, i), adapter))
        .collect();
    let best = found.iter().map(|(card, _)| card.rank()).min();
    for (card, _) in &mut found {
        card.chosen = Some(card.rank()) == best;
        card.why = card.kind().into();
        if card.chosen {
            card.why += ": the best kind here; --gpu takes another";
        }
    }
    found
}

/// wgpu knows nothing of subgroups in browsers. A page that wants them asks for them itself when the device is requested, as
/// web/src/worker.js does; whether it has them, the device tells.
#[cfg(target_arch = "wasm32")]
pub(super) fn has_subgroups(device: &wgpu::Device) -> bool {
    use js_sys::{Function, Reflect};
    use wasm_bindgen::{JsCast, JsValue};
    let has = || -> std::result::Result<bool, JsValue> {
        let device: &JsValue = device.as_webgpu().ok_or(JsValue::NULL)?.as_ref();
        let features = Reflect::get(device, &"features".into())?;
        let has: Function = Reflect::get(&features, &"has".into())?.dyn_into()?;
        Ok(has.call1(&features, &"subgroups".into())?.is_truthy())
    };
    has().unwrap_or(false)
}

pub(super) async fn cards() -> Vec<GpuCard> {
    adapters().await.into_iter().map(|(card, _)| card).collect()
}

/// wgpu's backend that does nothing, under the card of a usual discrete GPU.
#[cfg(not(target_arch = "wasm32"))]
pub(super) async fn described() -> Result<(GpuCard, wgpu::Adapter)> {
    let mut wanted = wgpu::InstanceDescriptor::new_without_display_handle();
    wanted.backends = wgpu::Backends::NOOP;
    wanted.backend_options.noop.enable = true;
    let found = wgpu::Instance::new(wanted).request_adapter(&wgpu::RequestAdapterOptions::default()).await;
    let adapter = found.map_err(|e| Error::Gpu { what: "a described GPU".into(), message: e.to_string() })?;
    let limits = wgpu::Limits {
        max_buffer_size: 1 << 40,
        max_storage_buffer_binding_size: (4 << 30) - 4,
        ..wgpu::Limits::default()
    };
    let card = GpuCard {
        name: "a described GPU".into(),
        device_type: wgpu::DeviceType::DiscreteGpu,
        limits,
        subgroups: true,
        subgroup_size: (32, 32),
        f16: true,
        ..GpuCard::of(&adapter, 0)
    };
    Ok((card, adapter))
}

pub(super) async fn choose(options: &GpuOptions) -> Result<(GpuCard, wgpu::Adapter)> {
    let found = adapters().await;
    if found.is_empty() {
        return Err(Error::NoGpu {
            what: "none was found (Vulkan, Metal, DX12 or WebGPU)".into(),
            hint: "Install your GPU's driver; without a GPU, a software one: on Debian and Ubuntu `apt install mesa-vulkan-drivers libvulkan1`".into(),
        });
    }
    let names: Vec<String> = found.iter().map(|(card, _)| format!("{}: {}", card.index, card.name)).collect();
    let wanted = |card: &GpuCard| match &options.adapter {
        None => card.chosen,
        Some(text) => match text.parse::<usize>() {
            Ok(index) => card.index == index,
            Err(_) => card.name.to_lowercase().contains(&text.to_lowercase()),
        },
    };
    found.into_iter().find(|(card, _)| wanted(card)).ok_or_else(|| {
        let asked = options.adapter.as_deref().unwrap_or_default();
        let part = if asked.parse::<usize>().is_ok() { "the index" } else { "a part of the name" };
        Error::Argument {
            what: "GPU adapter".into(),
            expected: format!("{part} of one that is there ({})", names.join(", ")),
            got: format!("{asked:?}, which none has"),
        }
    })
}
