//! Every kernel: checked against its reference, then timed. Beside each figure stands the device's own measured
//! ceiling, for reading (GB/s) or for multiply-adds (GFLOP/s).
//!
//! `cargo bench --bench kernels [-- PART_OF_A_NAME]`

#[path = "../tests/common/mod.rs"]
mod common;

use common::gpu::{filled, gpu, random_weight};
use common::{Random, close};
use peregrine::formats::Format;
use peregrine::kernels::kv_store::KvCache;
use peregrine::kernels::linear::linear;
use peregrine::kernels::rms_norm::Rows;
use peregrine::kernels::rope::Angles;
use peregrine::kernels::top_k::TopK;
use peregrine::kernels::{self, KvFormat};
use peregrine::model::{Pairing, Rope};
use peregrine::plan::{Frame, PlanBuilder};
use peregrine::reference::ops;
use peregrine::tensor::Tensor;
use peregrine::weight::Vector;
use peregrine::{Error, bench, block_on};
use std::time::Instant;

/// Dispatches of one timed pass: enough that submitting it weighs nothing.
const REPEATS: u32 = 20;
/// Timed passes; the fastest counts, since this measures the kernel and not the machine's other work.
const PASSES: u32 = 5;

/// What bounds a kernel, and how much of it one dispatch does.
enum Work {
    Bytes(f64),
    Flops(f64),
}

struct Bench {
    filter: Option<String>,
    /// Bytes a second.
    read: f64,
    /// Operations a second.
    flops: f64,
}

impl Bench {
    /// Runs one dispatch and `check`, then times many.
    fn run(
        &self,
        name: &str,
        frame: Frame,
        work: Work,
        step: impl Fn(&mut PlanBuilder) -> Result<(), Error>,
        check: impl FnOnce() -> Result<(), String>,
    ) {
        if self.filter.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            return;
        }
        let pass = |repeats: u32| {
            let mut plan = PlanBuilder::new(gpu(), frame.tokens);
            (0..repeats).for_each(|_| step(&mut plan).expect("a valid step"));
            let plan = plan.finish("bench").expect("a valid plan");
            move || {
                let start = Instant::now();
                let mut encoder = gpu().device().create_command_encoder(&Default::default());
                plan.record(&mut encoder, frame);
                gpu().queue().submit([encoder.finish()]);
                gpu().wait().expect("the GPU answers");
                start.elapsed().as_secs_f64()
            }
        };
        pass(1)();
        let checked = check();
        let timed = pass(REPEATS);
        timed();
        let seconds = (0..PASSES).map(|_| timed()).fold(f64::INFINITY, f64::min) / REPEATS as f64;
        let (figure, ceiling, unit) = match work {
            Work::Bytes(bytes) => (bytes / seconds, self.read, "GB/s"),
            Work::Flops(flops) => (flops / seconds, self.flops, "GFLOP/s"),
        };
        let verdict = checked.map_or_else(|e| format!("WRONG: {e}"), |()| "ok".into());
        let share = 100.0 * figure / ceiling;
        println!(
            "{name:<36} {:>9.1} us {:>8.2} {unit:<7} {share:>5.0} % of {:.1}  {verdict}",
            seconds * 1e6,
            figure / 1e9,
            ceiling / 1e9
        );
    }
}

fn frame(position: u32, tokens: u32) -> Frame {
    Frame { position, tokens }
}

fn check(y: &Tensor, rows: u32, want: &[f32], tolerance: f32) -> Result<(), String> {
    let got = block_on(y.read(gpu(), rows)).map_err(|e| e.to_string())?;
    close("y", &got, want, tolerance, 1e-4).map(drop)
}

fn tensor(rows: u32, cols: u32) -> Tensor {
    Tensor::new(gpu(), "y", rows, cols).expect("room for y")
}

fn main() {
    let filter = std::env::args().skip(1).find(|arg| !arg.starts_with('-'));
    let read = block_on(bench::read_bandwidth(gpu())).expect("a measurement");
    let flops = block_on(bench::arithmetic(gpu())).expect("a measurement");
    println!("{}: reads {:.1} GB/s, {:.1} GFLOP/s of f32 multiply-adds", gpu().card().name, read / 1e9, flops / 1e9);
    let bench = Bench { filter, read, flops };
    let mut random = Random::new(1);

    for format in Format::ALL {
        let (t, n, k) = (128, 1536, 768);
        let (w, floats) = random_weight(gpu(), format, &mut random, n, k);
        let x_floats = random.normals((t * k) as usize, 1.0);
        let x = filled(t, k, &x_floats);
        let want = ops::matmul(&x_floats, &floats, t as usize, k as usize, n as usize);
        let y = tensor(1, n);
        bench.run(
            &format!("matvec {} [{n}, {k}]", format.name()),
            frame(0, 1),
            Work::Bytes(w.bytes() as f64),
            |plan| linear(plan, "y", &x, &w, Rows::Last, &y),
            || check(&y, 1, &want[..n as usize], 2e-3),
        );
        let y = tensor(t, n);
        bench.run(
            &format!("matmul {} [{t}, {k}] x [{n}, {k}]", format.name()),
            frame(0, t),
            Work::Flops(2.0 * (t * n) as f64 * k as f64),
            |plan| linear(plan, "y", &x, &w, Rows::All, &y),
            || check(&y, t, &want, 2e-3),
        );
        let ids = random.ids(t as usize, n);
        let ids_buffer = gpu().buffer("ids", t as u64 * 4).expect("room for ids");
        gpu().upload(&ids_buffer, [bytemuck::cast_slice(&ids)]).expect("an upload");
        let y = tensor(t, k);
        bench.run(
            &format!("embed {} [{t}, {k}]", format.name()),
            frame(0, t),
            Work::Bytes((t * k) as f64 * format.block_bytes() as f64 / format.block_weights() as f64),
            |plan| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y),
            || check(&y, t, &ops::embed(&floats, &ids, k as usize), 1e-5),
        );
    }

    let (t, c) = (128, 1536);
    let (a, b) = (random.normals((t * c) as usize, 1.0), random.normals((t * c) as usize, 1.0));
    let gain = random.normals(c as usize, 1.0);
    let vector = Vector::upload(gpu(), "vector", &gain).expect("an upload");
    let bytes = (t * c * 4) as f64;
    let (x, u, y) = (filled(t, c, &a), filled(t, c, &b), tensor(t, c));
    bench.run(
        "rms_norm [128, 1536]",
        frame(0, t),
        Work::Bytes(bytes),
        |plan| kernels::rms_norm::rms_norm(plan, "y", &x, &vector, 1e-5, Rows::All, &y),
        || check(&y, t, &ops::rms_norm(&a, &gain, 1e-5), 1e-4),
    );
    bench.run(
        "swiglu [128, 1536]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan| kernels::swiglu::swiglu(plan, "y", &x, &u, &y),
        || check(&y, t, &ops::swiglu(&a, &b), 1e-4),
    );
    bench.run(
        "softmax [128, 1536]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan| kernels::softmax::softmax(plan, "y", &x, &y),
        || check(&y, t, &ops::softmax(&a, c as usize), 1e-5),
    );
    let sum = filled(t, c, &b);
    bench.run(
        "add [128, 1536]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan| kernels::add::add(plan, "y", &x, &sum),
        || check(&sum, t, &ops::add(&a, &b), 1e-5),
    );
    let biased = filled(t, c, &b);
    bench.run(
        "add_bias [128, 1536]",
        frame(0, t),
        Work::Bytes(bytes),
        |plan| kernels::add_bias::add_bias(plan, "y", &vector, &biased),
        || check(&biased, t, &ops::add_bias(&b, &gain), 1e-5),
    );

    let (h, kv, d, context) = (9, 3, 64, 2048);
    let inv_freq = (0..d / 2).map(|i| 1e5f32.powf(-2.0 * i as f32 / d as f32)).collect();
    let rope = Rope { dims: d as usize, inv_freq, magnitude: 1.0, pairing: Pairing::Neighbours };
    let angles = Angles::upload(gpu(), &rope, context).expect("an upload");
    let q_floats = random.normals((t * h * d) as usize, 1.0);
    let turned = filled(t, h * d, &q_floats);
    let positions: Vec<u32> = (0..t).collect();
    bench.run(
        "rope [128, 9, 64]",
        frame(0, t),
        Work::Bytes((t * h * d * 4) as f64),
        |plan| kernels::rope::rope(plan, "x", &angles, d, &turned),
        || check(&turned, t, &ops::rope(&q_floats, &positions, h as usize, d as usize, &rope), 1e-4),
    );

    for format in [KvFormat::F32, KvFormat::F16] {
        let width = kv * d;
        let rounded = |values: Vec<f32>| -> Vec<f32> {
            // values that both formats hold exactly, so that one reference serves
            values.into_iter().map(|v| half::f16::from_f32(v).to_f32()).collect()
        };
        let keys = rounded(random.normals((context * width) as usize, 1.0));
        let values = rounded(random.normals((context * width) as usize, 1.0));
        let (k, v) = (filled(context, width, &keys), filled(context, width, &values));
        let room = || gpu().buffer("cache", (context * width * format.bytes()) as u64).expect("room for the cache");
        let cache = KvCache { k: room(), v: room(), format };
        let stored = context * width;
        bench.run(
            &format!("kv_store {format:?} [2048, 3, 64]"),
            frame(0, context),
            Work::Bytes((2 * stored * 4) as f64),
            |plan| kernels::kv_store::kv_store(plan, "kv", &k, &v, &cache),
            || Ok(()), // attention below reads what it wrote
        );
        let (q, y) = (filled(t, h * d, &q_floats), tensor(t, h * d));
        for (tokens, position) in [(1, 511), (1, 2047), (t, 0)] {
            let keys_read = if tokens == 1 { position + 1 } else { tokens * (tokens + 1) / 2 };
            let work = match tokens {
                1 => Work::Bytes((2 * keys_read * width * format.bytes()) as f64),
                _ => Work::Flops(4.0 * (keys_read * h * d) as f64),
            };
            bench.run(
                &format!("attention {format:?} T {tokens} position {position}"),
                frame(position, tokens),
                work,
                |plan| kernels::attention::attention(plan, "y", &q, &cache, kv, d, &y),
                || {
                    let n = (tokens * h * d) as usize;
                    let (h, kv, d) = (h as usize, kv as usize, d as usize);
                    check(
                        &y,
                        tokens,
                        &ops::attention(&q_floats[..n], &keys, &values, position as usize, h, kv, d),
                        1e-4,
                    )
                },
            );
        }
    }

    let v = 49_152;
    let logits_floats = random.normals(v as usize, 3.0);
    let logits = filled(1, v, &logits_floats);
    for k in [1, 40] {
        let found = TopK::new(gpu(), 1, k).expect("room");
        bench.run(
            &format!("top_k {k} of 49152"),
            frame(0, 1),
            Work::Bytes(((k + 1) * v * 4) as f64),
            |plan| kernels::top_k::top_k(plan, "best", &logits, Rows::All, &found),
            || {
                let got = block_on(found.best.read(gpu(), 1)).map_err(|e| e.to_string())?;
                let got: Vec<u32> = got.chunks(2).map(|pair| pair[0].to_bits()).collect();
                let (want, _) = ops::top_k(&logits_floats, k as usize);
                if got == want { Ok(()) } else { Err(format!("{got:?} for {want:?}")) }
            },
        );
    }
}
