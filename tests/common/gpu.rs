//! What the GPU tests share: one device for the whole test binary, its profiles, poisoned outputs, random weights.

use super::tiny::random_weights;
use super::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::{Columns, Gradient};
use peregrine::plan::{Frame, PlanBuilder};
use peregrine::reference::ops;
use peregrine::tensor::Tensor;
use peregrine::weight::Weight;
use peregrine::{Error, Gpu, Profile, block_on};
use std::sync::OnceLock;

/// The one device. Without an adapter the test fails: there is no silent skip.
pub fn gpu() -> &'static Gpu {
    static GPU: OnceLock<Gpu> = OnceLock::new();
    GPU.get_or_init(|| {
        let gpu = block_on(Gpu::new()).unwrap_or_else(|e| panic!("GPU tests need an adapter: {e}"));
        super::loudly(&format!("GPU tests run on {} ({:?})", gpu.card().name, gpu.card().backend));
        gpu
    })
}

/// The device under every profile that it can have: each is complete, so each is tested.
pub fn profiles() -> Vec<(String, Gpu)> {
    let card = gpu().card();
    let subgroups = [false, card.subgroups];
    let plain = Profile { lanes: false, subgroups: false, eights: false, int8: false, matrix: None, chunk: 128 };
    let mut all = vec![("lanes".to_string(), Profile { lanes: true, ..plain })];
    if card.subgroups && card.subgroup_size == (8, 8) {
        all.push(("lanes, eights".into(), Profile { lanes: true, subgroups: true, eights: true, ..plain }));
    }
    for subgroups in if card.subgroups { &subgroups[..] } else { &subgroups[..1] } {
        let name = format!("groups, {}", if *subgroups { "subgroups" } else { "shared" });
        all.push((name, Profile { subgroups: *subgroups, ..plain }));
    }
    all.into_iter().map(|(name, profile)| (name, gpu().with_profile(profile))).collect()
}

/// Builds a plan of the steps that `build` adds and runs one pass.
pub fn run(gpu: &Gpu, frame: Frame, build: impl FnOnce(&mut PlanBuilder) -> Result<(), Error>) -> Result<(), String> {
    let mut plan = PlanBuilder::new(gpu, frame.tokens);
    build(&mut plan).map_err(|e| e.to_string())?;
    let plan = plan.finish("test").map_err(|e| e.to_string())?;
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    plan.record(&mut encoder, frame);
    gpu.queue().submit([encoder.finish()]);
    gpu.wait().map_err(|e| e.to_string())
}

pub fn frame(position: u32, tokens: u32) -> Frame {
    Frame { position, tokens }
}

/// [A, B, D] -> [B, A, D]: a cache has kv heads before positions, the reference has them after.
pub fn swapped(x: &[f32], a: u32, b: u32, d: u32) -> Vec<f32> {
    let row = |i: u32, j: u32| &x[((i * b + j) * d) as usize..][..d as usize];
    (0..b).flat_map(|j| (0..a).flat_map(move |i| row(i, j))).copied().collect()
}

pub const POISON: f32 = f32::NAN;

/// A tensor full of NaN with one guard row behind the rows that the kernel may write.
pub fn poisoned(rows: u32, cols: u32) -> Tensor {
    let tensor = Tensor::new(gpu(), "poisoned", rows + 1, cols).unwrap();
    let floats = vec![POISON; ((rows + 1) * tensor.stride()) as usize];
    gpu().upload(&tensor.buffer, [bytemuck::cast_slice(&floats)]).unwrap();
    tensor
}

/// A tensor that holds `data` [rows, cols] and a poisoned guard row.
pub fn filled(rows: u32, cols: u32, data: &[f32]) -> Tensor {
    let tensor = Tensor::new(gpu(), "filled", rows + 1, cols).unwrap();
    tensor.write(gpu(), data).unwrap();
    let row = vec![POISON; tensor.stride() as usize];
    gpu().queue().write_buffer(&tensor.buffer, rows as u64 * tensor.stride() as u64 * 4, bytemuck::cast_slice(&row));
    tensor
}

/// The first `rows` rows, after checking that nobody wrote into the guard row behind them.
pub fn read_guarded(tensor: &Tensor, rows: u32) -> Vec<f32> {
    let cols = tensor.cols as usize;
    let mut data = block_on(tensor.read(gpu(), rows + 1)).unwrap();
    let guard = data.split_off(rows as usize * cols);
    assert!(guard.iter().all(|v| v.is_nan()), "the guard row behind the output was written");
    data
}

/// A random matrix [rows, cols], as a file holds it, and its decoded weights.
pub fn random_bytes(format: Format, random: &mut Random, rows: u32, cols: u32) -> (Vec<u8>, Vec<f32>) {
    let bytes = random_weights(format, (rows * cols) as usize, 0.5, random);
    let mut floats = vec![0.0; (rows * cols) as usize];
    format.decode(&bytes, &mut floats);
    (bytes, floats)
}

/// A random matrix on the GPU and its decoded weights [rows, cols].
pub fn random_weight(gpu: &Gpu, format: Format, random: &mut Random, rows: u32, cols: u32) -> (Weight, Vec<f32>) {
    let (bytes, floats) = random_bytes(format, random, rows, cols);
    (Weight::upload(gpu, format.name(), format, rows, cols, &bytes).unwrap(), floats)
}

/// Bytes of plain numbers on the GPU.
pub fn buffer<N: bytemuck::Pod>(numbers: &[N]) -> wgpu::Buffer {
    let buffer = gpu().buffer("numbers", size_of_val(numbers) as u64).unwrap();
    gpu().upload(&buffer, [bytemuck::cast_slice(numbers)]).unwrap();
    buffer
}

/// Runs a backward op that stores its results, and once more adding them to what was there.
/// `build(plan, target, to)`; want [rows, cols].
pub fn both_ways(
    table: &mut Table,
    row: &str,
    (gpu, tokens, rows, cols): (&Gpu, u32, u32, u32),
    (want, abs): (&[f32], f32),
    build: impl Fn(&mut PlanBuilder, &Tensor, Gradient) -> Result<(), Error>,
) {
    let before = Random::new(77).normals((rows * cols) as usize, 1.0);
    for (to, target, want) in [
        (Gradient::Store, poisoned(rows, cols), want.to_vec()),
        (Gradient::Add, filled(rows, cols, &before), ops::add(&before, want)),
    ] {
        let outcome = run(gpu, frame(0, tokens), |plan| build(plan, &target, to))
            .and_then(|()| close("the gradient", &read_guarded(&target, rows), &want, abs, 1e-5));
        table.row(&format!("{row}, {to:?}"), outcome.map(drop));
    }
}

/// All that a tensor's buffer holds: rows, what lies between them, and the guard row.
pub fn raw(tensor: &Tensor) -> Vec<f32> {
    bytemuck::pod_collect_to_vec(&block_on(gpu().read(&tensor.buffer, 0, tensor.buffer.size())).unwrap())
}

/// Whether both hold the same bits at each place that `counts`.
pub fn same_bits(name: &str, got: &[f32], want: &[f32], counts: impl Fn(usize) -> bool) -> Result<(), String> {
    if got.len() != want.len() {
        return Err(format!("{name}: {} numbers, expected {}", got.len(), want.len()));
    }
    match (0..got.len()).find(|&i| counts(i) && got[i].to_bits() != want[i].to_bits()) {
        None => Ok(()),
        Some(i) => Err(format!("{name}: [{i}] is {} and was to stay {}", got[i], want[i])),
    }
}

/// Whether a column is one of these.
pub fn among(columns: Columns, column: u32) -> bool {
    let Columns { first, step, count } = columns;
    column >= first && (column - first).is_multiple_of(step) && (column - first) / step < count
}
