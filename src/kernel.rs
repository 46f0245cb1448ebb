//! Kernel: WGSL files to a compute pipeline. The WGSL is the one definition of a bind layout: the `@binding` lines
//! are read here and an explicit layout is built from them. The only place that creates pipelines.

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::shaders;

/// What a pipeline is made of: its files in order, the last of which holds the entry point that bears its name, and
/// values of its `override` constants.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct KernelKey {
    pub files: Vec<&'static str>,
    pub constants: Vec<(&'static str, u32)>,
}

impl KernelKey {
    pub fn new(parts: &[&[&'static str]]) -> KernelKey {
        KernelKey { files: parts.concat(), constants: Vec::new() }
    }

    pub fn with(mut self, constant: &'static str, value: u32) -> KernelKey {
        self.constants.push((constant, value));
        self
    }

    /// The entry point's name, which is the kernel's: "matvec" of "matvec.wgsl".
    pub fn name(&self) -> &'static str {
        self.files.last().map_or("", |file| file.trim_end_matches(".wgsl"))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BindingKind {
    Uniform,
    Read,
    ReadWrite,
}

/// One `@binding` line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Binding {
    pub index: u32,
    pub name: String,
    pub kind: BindingKind,
}

pub struct Kernel {
    pub name: &'static str,
    pub bindings: Vec<Binding>,
    /// None on an outline, whose plans do not run.
    pub(crate) compiled: Option<Compiled>,
}

pub(crate) struct Compiled {
    pub pipeline: wgpu::ComputePipeline,
    pub layout: wgpu::BindGroupLayout,
}

/// Reads the lines `@group(0) @binding(N) var<KIND> NAME: TYPE;`, sorted by N.
pub fn read_bindings(wgsl: &str) -> Vec<Binding> {
    let mut bindings: Vec<Binding> = wgsl.lines().filter_map(read_binding).collect();
    bindings.sort_by_key(|binding| binding.index);
    bindings
}

fn read_binding(line: &str) -> Option<Binding> {
    let rest = line.trim().strip_prefix("@group(0) @binding(")?;
    let (index, rest) = rest.split_once(") var<")?;
    let (kind, rest) = rest.split_once("> ")?;
    let (name, _) = rest.split_once(':')?;
    let kind = match kind {
        "uniform" => BindingKind::Uniform,
        "storage, read" => BindingKind::Read,
        "storage, read_write" => BindingKind::ReadWrite,
        _ => return None,
    };
    Some(Binding { index: index.parse().ok()?, name: name.trim().into(), kind })
}

impl Kernel {
    pub(crate) fn compile(gpu: &Gpu, key: &KernelKey) -> Result<Kernel> {
        let name = key.name();
        let wgsl = source(gpu, key);
        let bindings = read_bindings(&wgsl);
        if gpu.is_outline() {
            return Ok(Kernel { name, bindings, compiled: None });
        }
        let (compiled, error) =
            gpu.scoped(wgpu::ErrorFilter::Validation, |device| compile(gpu, device, key, wgsl, &bindings));
        if let Some(error) = error {
            return Err(Error::Gpu { what: format!("kernel {}", key.files.join(" + ")), message: error.to_string() });
        }
        Ok(Kernel { name, bindings, compiled: Some(compiled) })
    }
}

/// The text that a kernel is compiled from.
pub(crate) fn source(gpu: &Gpu, key: &KernelKey) -> String {
    match cfg!(target_arch = "wasm32") && gpu.card().subgroups {
        true => shaders::link_for_browsers(&key.files),
        false => shaders::link(&key.files),
    }
}

fn compile(gpu: &Gpu, device: &wgpu::Device, key: &KernelKey, wgsl: String, bindings: &[Binding]) -> Compiled {
    let name = key.name();
    // SAFETY: these are our own shaders. Their loops end, their divisors are not zero; bounds are checked in debug
    // builds, which the tests are.
    let module = unsafe {
        let mut checks = wgpu::ShaderRuntimeChecks::unchecked();
        checks.bounds_checks = cfg!(debug_assertions);
        let source = wgpu::ShaderSource::Wgsl(wgsl.into());
        device.create_shader_module_trusted(wgpu::ShaderModuleDescriptor { label: Some(name), source }, checks)
    };
    let entries: Vec<_> = bindings
        .iter()
        .map(|binding| wgpu::BindGroupLayoutEntry {
            binding: binding.index,
            visibility: wgpu::ShaderStages::COMPUTE,
            ty: wgpu::BindingType::Buffer {
                ty: match binding.kind {
                    BindingKind::Uniform => wgpu::BufferBindingType::Uniform,
                    BindingKind::Read => wgpu::BufferBindingType::Storage { read_only: true },
                    BindingKind::ReadWrite => wgpu::BufferBindingType::Storage { read_only: false },
                },
                has_dynamic_offset: false,
                min_binding_size: None,
            },
            count: None,
        })
        .collect();
    let layout =
        device.create_bind_group_layout(&wgpu::BindGroupLayoutDescriptor { label: Some(name), entries: &entries });
    let pipeline_layout = device.create_pipeline_layout(&wgpu::PipelineLayoutDescriptor {
        label: Some(name),
        bind_group_layouts: &[Some(&layout)],
        immediate_size: 0,
    });
    let constants: Vec<_> = key.constants.iter().map(|&(constant, value)| (constant, value as f64)).collect();
    let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
        label: Some(name),
        layout: Some(&pipeline_layout),
        module: &module,
        entry_point: Some(name),
        compilation_options: wgpu::PipelineCompilationOptions {
            constants: &constants,
            zero_initialize_workgroup_memory: false,
        },
        cache: gpu.pipeline_cache(),
    });
    Compiled { pipeline, layout }
}

/// Makes the Rust twin of a WGSL `struct Params`: plain scalars, checked against the WGSL by tests/shaders.rs.
macro_rules! params {
    ($(#[$meta:meta])* $name:ident { $($field:ident: $type:ident,)* }) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Debug, Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
        pub struct $name { $(pub $field: $type,)* }

        impl $crate::kernel::Params for $name {
            const FIELDS: &'static [(&'static str, &'static str)] = &[$((stringify!($field), stringify!($type)),)*];
        }
    };
}
pub(crate) use params;

/// A kernel's numbers, fixed when a plan is built.
pub trait Params: bytemuck::Pod {
    /// (name, type) of every field, in order; four bytes each.
    const FIELDS: &'static [(&'static str, &'static str)];
}
