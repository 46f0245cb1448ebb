//! Plan: a list of labelled steps, built once and replayed for every pass. Replaying makes no GPU object: what changes
//! from pass to pass is the frame (position, tokens), and the grids that follow from it.
//!
//! Printed, a plan is the architecture's diagram. Captured, it gives every intermediate by name (see [`Plan::capture`]).

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernel::{BindingKind, Kernel, KernelKey, Params};
use crate::tensor::Tensor;
use std::sync::Arc;

/// Uniform bindings begin at multiples of this on every device.
const PARAMS_STEP: usize = 256;
/// Workgroups in one dimension that every device takes.
const MAX_GROUPS: u32 = 65_535;

/// What changes from one replay to the next. Mirrors shaders/frame.wgsl.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Frame {
    /// Of the pass's first token in its sequence.
    pub position: u32,
    /// Tokens in the pass.
    pub tokens: u32,
}

/// How many workgroups a step takes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Grid {
    /// Workgroups in x (and y, where they are too many) for a token or a tile of tokens.
    pub groups: u32,
    /// Tokens that a workgroup covers; 0 if the step does not depend on the number of tokens.
    pub tokens: u32,
    /// Where a token is several rows of the tile: how many.
    pub rows_per_token: u32,
    /// Keys that a workgroup covers, for attention: y goes over the keys.
    pub keys: u32,
    /// Keys up to which the step is left out.
    pub idle_keys: u32,
}

impl Grid {
    /// So many workgroups, whatever the number of tokens.
    pub fn once(groups: u32) -> Grid {
        Grid { groups, ..Grid::default() }
    }

    /// So many workgroups for every tile of `tokens` tokens.
    pub fn tiles(groups: u32, tokens: u32) -> Grid {
        Grid { groups, tokens, rows_per_token: 1, ..Grid::default() }
    }

    /// One lane an item, 64 lanes a workgroup, for each token.
    pub fn lanes(items: u32) -> Grid {
        Grid::tiles(items.div_ceil(64), 1)
    }

    /// None if there is nothing to do.
    fn dispatch(self, frame: Frame) -> Option<(u32, u32, u32)> {
        let keys = frame.position + frame.tokens;
        if keys <= self.idle_keys {
            return None;
        }
        let y = if self.keys > 0 { keys.div_ceil(self.keys) } else { self.groups.div_ceil(MAX_GROUPS).max(1) };
        let x = if self.keys > 0 { self.groups } else { self.groups.div_ceil(y) };
        let z = if self.tokens == 0 { 1 } else { (frame.tokens * self.rows_per_token).div_ceil(self.tokens) };
        Some((x, y, z))
    }
}

/// What a step reads and computes, for predictions and for judging measurements. Activations are counted where they
/// are read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Bytes of weights, read once a pass.
    pub weight_bytes: u64,
    /// Bytes for each token.
    pub token_bytes: u64,
    /// Bytes for each key that the last token sees.
    pub key_bytes: u64,
    /// Operations (a multiply-add is two) for each token.
    pub token_flops: u64,
    /// Operations for each token and each key that it sees.
    pub key_flops: u64,
    /// Whether the multiply-adds are of bytes.
    pub int8: bool,
    /// Whether the step works on one token, however many the pass has.
    pub single: bool,
}

impl Cost {
    pub fn bytes(self, frame: Frame) -> u64 {
        let keys = (frame.position + frame.tokens) as u64;
        self.weight_bytes + self.token_bytes * self.tokens(frame) + self.key_bytes * keys
    }

    fn tokens(self, frame: Frame) -> u64 {
        if self.single { 1 } else { frame.tokens as u64 }
    }

    pub fn flops(self, frame: Frame) -> u64 {
        let (position, tokens) = (frame.position as u64, self.tokens(frame));
        self.token_flops * tokens + self.key_flops * (tokens * position + tokens * (tokens + 1) / 2)
    }
}

/// One dispatch.
pub struct Step {
    /// The name of what it computes: "blk.0.attn_norm".
    pub label: String,
    pub kernel: Arc<Kernel>,
    pub grid: Grid,
    /// What it writes; captured by [`Plan::capture`].
    pub output: Tensor,
    pub cost: Cost,
    /// What it works on: "[1536, 576] Q4_1".
    pub note: String,
    /// None on an outline.
    bind_group: Option<wgpu::BindGroup>,
}

/// Steps in the order in which they run.
pub struct Plan {
    gpu: Gpu,
    pub name: &'static str,
    /// The most tokens of one pass.
    pub max_tokens: u32,
    pub steps: Vec<Step>,
    frame: wgpu::Buffer,
}

impl Plan {
    /// Records one pass: the frame, then every step in one compute pass.
    pub fn record(&self, encoder: &mut wgpu::CommandEncoder, frame: Frame) {
        assert!(
            frame.tokens >= 1 && frame.tokens <= self.max_tokens,
            "a pass of {} takes 1 to {} tokens",
            self.name,
            self.max_tokens
        );
        self.write_frame(frame);
        let mut pass =
            encoder.begin_compute_pass(&wgpu::ComputePassDescriptor { label: Some(self.name), timestamp_writes: None });
        for step in &self.steps {
            step.record(&mut pass, frame);
        }
    }

    pub(crate) fn write_frame(&self, frame: Frame) {
        self.gpu.queue().write_buffer(&self.frame, 0, bytemuck::bytes_of(&frame));
    }

    /// Runs the steps one at a time and reads back what each wrote: (label, [rows, cols]).
    /// The first step whose values differ from the reference's is where a fault lies.
    pub async fn capture(&self, frame: Frame, mut each: impl FnMut(&Step, Vec<f32>)) -> Result<()> {
        self.write_frame(frame);
        for step in self.steps.iter().filter(|step| step.runs(frame)) {
            let mut encoder = self.gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            step.record(&mut encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default()), frame);
            self.gpu.queue().submit([encoder.finish()]);
            let rows = if step.grid.tokens == 0 { 1 } else { frame.tokens };
            let values = step.output.read(&self.gpu, rows).await?;
            each(step, values);
        }
        Ok(())
    }

    /// Dispatches of one pass.
    pub fn dispatches(&self, frame: Frame) -> usize {
        self.steps.iter().filter(|step| step.runs(frame)).count()
    }

    /// Bytes of weights that one pass reads.
    pub fn weight_bytes(&self) -> u64 {
        self.steps.iter().map(|step| step.cost.weight_bytes).sum()
    }
}

impl Step {
    /// The label without its block: "attn_qkv" of "blk.3.attn_qkv".
    pub fn kind(&self) -> &str {
        let rest = self.label.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        rest.map_or(&self.label, |(_, kind)| kind)
    }

    /// Whether there is something to do in such a pass.
    pub fn runs(&self, frame: Frame) -> bool {
        self.grid.dispatch(frame).is_some()
    }

    pub(crate) fn record(&self, pass: &mut wgpu::ComputePass, frame: Frame) {
        let Some((x, y, z)) = self.grid.dispatch(frame) else { return };
        let Some(compiled) = &self.kernel.compiled else { return };
        pass.set_pipeline(&compiled.pipeline);
        pass.set_bind_group(0, &self.bind_group, &[]);
        pass.dispatch_workgroups(x, y, z);
    }
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        let bytes = self.weight_bytes() as f64 / 1e6;
        writeln!(
            f,
            "plan {}: {} steps, {}, {bytes:.1} MB of weights a pass",
            self.name,
            self.steps.len(),
            if self.max_tokens == 1 { "one token".into() } else { format!("up to {} tokens", self.max_tokens) }
        )?;
        for (i, step) in self.steps.iter().enumerate() {
            let tokens = match step.grid {
                Grid { tokens: 0, .. } => "once".into(),
                Grid { tokens: 1, rows_per_token: 1, .. } => "per token".into(),
                Grid { tokens: 1, .. } => "per query".into(),
                Grid { tokens, rows_per_token: 1, .. } => format!("per {tokens} tokens"),
                Grid { tokens, .. } => format!("per {tokens} queries"),
            };
            let (label, kernel, groups, cols) = (&step.label, step.kernel.name, step.grid.groups, step.output.cols);
            writeln!(f, "{i:4}  {label:<24} {kernel:<16} {groups:>6} groups {tokens:<14} -> [T, {cols}]")?;
        }
        Ok(())
    }
}

/// A step before its params and bind group exist.
struct Draft {
    label: String,
    kernel: Arc<Kernel>,
    grid: Grid,
    output: Tensor,
    cost: Cost,
    note: String,
    params: (usize, usize), // (offset, size) in the arena
    buffers: Vec<(u32, wgpu::Buffer)>,
}

/// Collects steps; [`PlanBuilder::finish`] makes the GPU objects.
pub struct PlanBuilder {
    pub gpu: Gpu,
    pub max_tokens: u32,
    /// Only kernels that compute in f32 throughout.
    pub exact: bool,
    drafts: Vec<Draft>,
    arena: Vec<u8>,
}

impl PlanBuilder {
    pub fn new(gpu: &Gpu, max_tokens: u32) -> PlanBuilder {
        PlanBuilder { gpu: gpu.clone(), max_tokens, exact: false, drafts: Vec::new(), arena: Vec::new() }
    }

    /// Adds a step. `buffers` names every binding but `params` and `frame`, as the shader does and in its order;
    /// `output` is the tensor that it writes.
    pub fn step<P: Params>(
        &mut self,
        label: &str,
        key: &KernelKey,
        params: P,
        buffers: &[(&str, &wgpu::Buffer)],
        grid: Grid,
        output: &Tensor,
    ) -> Result<()> {
        let kernel = self.gpu.kernel(key)?;
        let offset = self.arena.len();
        self.arena.extend_from_slice(bytemuck::bytes_of(&params));
        self.arena.resize(self.arena.len().next_multiple_of(PARAMS_STEP), 0);
        let wanted: Vec<_> = kernel.bindings.iter().filter(|b| b.kind != BindingKind::Uniform).collect();
        let names = |all: &mut dyn Iterator<Item = &str>| all.collect::<Vec<_>>().join(", ");
        // A mistake in our own plan: told at once, with both names.
        assert!(
            wanted.len() == buffers.len()
                && wanted.iter().zip(buffers).all(|(binding, buffer)| binding.name == buffer.0),
            "step {label}: kernel {} binds ({}), got ({})",
            kernel.name,
            names(&mut wanted.iter().map(|b| b.name.as_str())),
            names(&mut buffers.iter().map(|b| b.0)),
        );
        let buffers = wanted.iter().zip(buffers).map(|(binding, buffer)| (binding.index, buffer.1.clone())).collect();
        let params = (offset, size_of::<P>());
        let output = output.clone();
        self.drafts.push(Draft {
            label: label.into(),
            kernel,
            grid,
            output,
            cost: Cost::default(),
            note: String::new(),
            params,
            buffers,
        });
        Ok(())
    }

    /// Notes what the step just added works on.
    pub fn note(&mut self, note: String) {
        if let Some(draft) = self.drafts.last_mut() {
            draft.note = note;
        }
    }

    /// Notes what the step just added costs.
    pub fn cost(&mut self, cost: Cost) {
        if let Some(draft) = self.drafts.last_mut() {
            draft.cost = cost;
        }
    }

    pub fn finish(self, name: &'static str) -> Result<Plan> {
        let device = self.gpu.device();
        let uniform = |label: &str, size: u64| {
            let usage = wgpu::BufferUsages::UNIFORM | wgpu::BufferUsages::COPY_DST;
            device.create_buffer(&wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation: false })
        };
        let frame = uniform("frame", size_of::<Frame>().next_multiple_of(16) as u64);
        let arena = uniform("params", self.arena.len().max(PARAMS_STEP) as u64);
        self.gpu.queue().write_buffer(&arena, 0, &self.arena);
        let bind = |draft: &Draft| {
            let layout = &draft.kernel.compiled.as_ref()?.layout;
            let mut entries = Vec::new();
            for binding in &draft.kernel.bindings {
                let resource = match (binding.kind, binding.name.as_str()) {
                    (BindingKind::Uniform, "frame") => frame.as_entire_binding(),
                    (BindingKind::Uniform, _) => wgpu::BindingResource::Buffer(wgpu::BufferBinding {
                        buffer: &arena,
                        offset: draft.params.0 as u64,
                        size: std::num::NonZero::new(draft.params.1.next_multiple_of(16) as u64),
                    }),
                    _ => continue,
                };
                entries.push(wgpu::BindGroupEntry { binding: binding.index, resource });
            }
            entries.extend(draft.buffers.iter().map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: *binding,
                resource: buffer.as_entire_binding(),
            }));
            let label = Some(draft.label.as_str());
            Some(device.create_bind_group(&wgpu::BindGroupDescriptor { label, layout, entries: &entries }))
        };
        let (groups, error): (Vec<_>, _) =
            self.gpu.scoped(wgpu::ErrorFilter::Validation, |_| self.drafts.iter().map(bind).collect());
        if let Some(error) = error {
            return Err(Error::Gpu { what: format!("plan {name}"), message: error.to_string() });
        }
        let steps = self
            .drafts
            .into_iter()
            .zip(groups)
            .map(|(Draft { label, kernel, grid, output, cost, note, .. }, bind_group)| Step {
                label,
                kernel,
                grid,
                output,
                cost,
                note,
                bind_group,
            })
            .collect();
        Ok(Plan { gpu: self.gpu, name, max_tokens: self.max_tokens, steps, frame })
    }
}
