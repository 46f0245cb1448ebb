//! Every kernel: checked against its reference, then timed. Beside each figure stands the device's own measured
//! ceiling, for reading (GB/s) or for multiply-adds (GFLOP/s); for y = W x also the ceiling of its mix: on a software GPU
//! the time to read the bytes and the time to do the multiply-adds, one after the other, since both take the same
//! processor's instructions; elsewhere the longer of the two.
//!
//! `cargo bench --bench kernels [-- PART_OF_A_NAME]`

#[path = "../tests/common/mod.rs"]
mod common;

use common::gpu::{filled, gpu, random_bytes, random_weight, swapped};
use common::{Random, close};
use peregrine::bench::{Ceilings, median};
use peregrine::formats::Format;
use peregrine::kernels::attention::Splits;
use peregrine::kernels::linear::{Finish, Input, linear};
use peregrine::kernels::rms_norm::Rows;
use peregrine::kernels::rope_kv::{Angles, HeadNorms, KvCache};
use peregrine::kernels::sample::{Chosen, Sample, Settings};
use peregrine::kernels::{self, KvFormat};
use peregrine::model::{Pairing, Rope};
use peregrine::plan::{Cost, Frame, PlanBuilder};
use peregrine::reference::ops;
use peregrine::tensor::{Element, Tensor};
use peregrine::weight::{Vector, Weight};
use peregrine::{Error, Sampler, Sampling, block_on};
use std::time::Instant;

/// Dispatches of one timed pass: enough that submitting it weighs nothing. For matvec each has a W of its own, and
/// for attention its own keys and values, since a model's are seldom in the processor's cache when their turn comes; all
/// else works on what the cache may hold.
const REPEATS: u32 = 20;
/// Rounds of a measurement of the ceilings and the fastest of a few timed passes right after it. The median of the rounds
/// counts, so that a machine's slow moments fall on both sides of the share.
const ROUNDS: usize = 5;
const PASSES: u32 = 3;

/// What bounds a kernel, and how much of it one dispatch does.
enum Work {
    Bytes(f64),
    Flops(f64),
}

struct Bench {
    filter: Option<String>,
}

impl Bench {
    /// Runs one dispatch and `check`, then times many.
    fn run(
        &self,
        name: &str,
        frame: Frame,
        work: Work,
        step: impl Fn(&mut PlanBuilder, usize) -> Result<(), Error>,
        check: impl FnOnce() -> Result<(), String>,
    ) {
        if self.filter.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
            return;
        }
        let pass = |repeats: u32| {
            let mut plan = PlanBuilder::new(gpu(), frame.tokens);
            (0..repeats as usize).for_each(|i| step(&mut plan, i).expect("a valid step"));
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
        let cost = plan_cost(&step, frame.tokens);
        let (amount, unit) = match work {
            Work::Bytes(bytes) => (bytes, "GB/s"),
            Work::Flops(flops) => (flops, "GFLOP/s"),
        };
        let (mut all_seconds, mut ceilings, mut shares, mut mixed) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let at_best = block_on(Ceilings::measure(gpu())).expect("a measurement");
            let seconds = (0..PASSES).map(|_| timed()).fold(f64::INFINITY, f64::min) / REPEATS as f64;
            let ceiling = if unit == "GB/s" { at_best.read } else { at_best.flops };
            all_seconds.push(seconds);
            ceilings.push(ceiling);
            shares.push(100.0 * amount / seconds / ceiling);
            mixed.push(100.0 * at_best.seconds(cost, frame, gpu().profile().lanes) / seconds);
        }
        let mix = if cost.weight_bytes > 0 { format!("{:>4.0} % of its mix", median(&mixed)) } else { String::new() };
        let verdict = checked.map_or_else(|e| format!("WRONG: {e}"), |()| "ok".into());
        let seconds = median(&all_seconds);
        println!(
            "{name:<36} {:>9.1} us {:>8.2} {unit:<7} {:>5.0} % of {:<6.1} {mix:<18} {verdict}",
            seconds * 1e6,
            amount / seconds / 1e9,
            median(&shares),
            median(&ceilings) / 1e9
        );
    }
}

/// What the step says that it costs.
fn plan_cost(step: &impl Fn(&mut PlanBuilder, usize) -> Result<(), Error>, tokens: u32) -> Cost {
    let mut plan = PlanBuilder::new(gpu(), tokens);
    step(&mut plan, 0).expect("a valid step");
    plan.finish("cost").expect("a valid plan").steps[0].cost
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
    let ceilings = block_on(Ceilings::measure(gpu())).expect("a measurement");
    println!(
        "{}: reads {:.1} GB/s, {:.1} GFLOP/s of f32 multiply-adds, {:.1} Gop/s of bytes, {:.1} us a dispatch",
        gpu().card().name,
        ceilings.read / 1e9,
        ceilings.flops / 1e9,
        ceilings.int8 / 1e9,
        ceilings.dispatch * 1e6
    );
    let bench = Bench { filter };
    let mut random = Random::new(1);

    for format in Format::ALL {
        // a matrix that hides what a dispatch costs, and SmolLM2's largest in a block
        for (n, k) in [(4096, 2048), (3072, 576)] {
            let (bytes, floats) = random_bytes(format, &mut random, n, k);
            let upload = |_| Weight::upload(gpu(), "w", format, n, k, &bytes).expect("room for weights");
            let copies: Vec<Weight> = (0..REPEATS).map(upload).collect();
            let w = &copies[0];
            let x_floats = random.normals(k as usize, 1.0);
            let x = filled(1, k, &x_floats);
            let want = ops::matmul(&x_floats, &floats, 1, k as usize, n as usize);
            let y = tensor(1, n);
            bench.run(
                &format!("matvec {} [{n}, {k}]", format.name()),
                frame(0, 1),
                Work::Bytes(w.bytes() as f64),
                |plan, i| linear(plan, "y", &x, Input::Plain, &copies[i], None, Rows::Last, Finish::Store(&y)),
                || check(&y, 1, &want, 2e-3),
            );
            if w.is_quantized() && gpu().profile().lanes {
                let bytes = Tensor::of(gpu(), "bytes", 1, k, Element::Bytes).expect("room for bytes");
                let mut plan = PlanBuilder::new(gpu(), 1);
                kernels::quantize::quantize(&mut plan, "bytes", &x, &bytes).expect("a valid step");
                let plan = plan.finish("bytes").expect("a valid plan");
                let mut encoder = gpu().device().create_command_encoder(&Default::default());
                plan.record(&mut encoder, frame(0, 1));
                gpu().queue().submit([encoder.finish()]);
                let rounded = block_on(bytes.read(gpu(), 1)).expect("bytes");
                let want = ops::matmul(&rounded, &floats, 1, k as usize, n as usize);
                bench.run(
                    &format!("matvec of bytes {} [{n}, {k}]", format.name()),
                    frame(0, 1),
                    Work::Bytes(w.bytes() as f64),
                    |plan, i| linear(plan, "y", &bytes, Input::Plain, &copies[i], None, Rows::Last, Finish::Store(&y)),
                    || check(&y, 1, &want, 2e-3),
                );
            }
        }

        let (t, n, k) = (128, 1536, 768);
        let (w, floats) = random_weight(gpu(), format, &mut random, n, k);
        let x_floats = random.normals((t * k) as usize, 1.0);
        let x = filled(t, k, &x_floats);
        let want = ops::matmul(&x_floats, &floats, t as usize, k as usize, n as usize);
        for t in [2, 4, 8, 32, t] {
            let y = tensor(t, n);
            bench.run(
                &format!("matmul {} [{t}, {k}] x [{n}, {k}]", format.name()),
                frame(0, t),
                Work::Flops(2.0 * (t * n) as f64 * k as f64),
                |plan, _| linear(plan, "y", &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y)),
                || check(&y, t, &want[..(t * n) as usize], 2e-3),
            );
        }
        let ids = random.ids(t as usize, n);
        let ids_buffer = gpu().buffer("ids", t as u64 * 4).expect("room for ids");
        gpu().upload(&ids_buffer, [bytemuck::cast_slice(&ids)]).expect("an upload");
        let y = tensor(t, k);
        bench.run(
            &format!("embed {} [{t}, {k}]", format.name()),
            frame(0, t),
            Work::Bytes((t * k) as f64 * format.block_bytes() as f64 / format.block_weights() as f64),
            |plan, _| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y),
            || check(&y, t, &ops::embed(&floats, &ids, k as usize), 1e-5),
        );
    }

    let (t, c) = (128, 1536);
    let (a, b) = (random.normals((t * c) as usize, 1.0), random.normals((t * c) as usize, 1.0));
    let gain = random.normals(c as usize, 1.0);
    let vector = Vector::upload(gpu(), "vector", &gain).expect("an upload");
    let bytes = (t * c * 4) as f64;
    let (x, y) = (filled(t, c, &a), tensor(t, c));
    bench.run(
        "rms_norm [128, 1536]",
        frame(0, t),
        Work::Bytes(bytes),
        |plan, _| kernels::rms_norm::rms_norm(plan, "y", &x, &vector, 1e-5, Rows::All, &y),
        || check(&y, t, &ops::rms_norm(&a, &gain, 1e-5), 1e-4),
    );
    let both: Vec<f32> = a.chunks(c as usize).zip(b.chunks(c as usize)).flat_map(|(a, b)| [a, b].concat()).collect();
    let gate_up = filled(t, 2 * c, &both);
    bench.run(
        "swiglu [128, 1536]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan, _| kernels::swiglu::swiglu(plan, "y", &gate_up, kernels::swiglu::Lie::Stacked, &y),
        || check(&y, t, &ops::swiglu(&a, &b), 1e-4),
    );
    let in_bytes = Tensor::of(gpu(), "bytes", t, c, Element::Bytes).expect("room for bytes");
    bench.run(
        "quantize [128, 1536]",
        frame(0, t),
        Work::Bytes(bytes),
        |plan, _| kernels::quantize::quantize(plan, "y", &x, &in_bytes),
        || check(&in_bytes, t, &ops::quantize(&a, c as usize), 0.05),
    );
    bench.run(
        "softmax [128, 1536]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan, _| kernels::softmax::softmax(plan, "y", &x, &y),
        || check(&y, t, &ops::softmax(&a, c as usize), 1e-5),
    );
    let (h, kv, d, context) = (9, 3, 64, 8192);
    let inv_freq = (0..d / 2).map(|i| 1e5f32.powf(-2.0 * i as f32 / d as f32)).collect();
    let rope = Rope { dims: d as usize, inv_freq, magnitude: 1.0, pairing: Pairing::Neighbours };
    let angles = Angles::upload(gpu(), &rope, context).expect("an upload");
    let q_floats = random.normals((t * h * d) as usize, 1.0);
    let positions: Vec<u32> = (0..t).collect();

    for format in [KvFormat::F32, KvFormat::F16] {
        let width = kv * d;
        let rounded = |values: Vec<f32>| -> Vec<f32> {
            // values that both formats hold exactly, so that one reference serves
            values.into_iter().map(|v| half::f16::from_f32(v).to_f32()).collect()
        };
        let keys = rounded(random.normals((context * width) as usize, 1.0));
        let values = rounded(random.normals((context * width) as usize, 1.0));
        let room = || gpu().buffer("cache", format.bytes((context * width) as u64)).expect("room for the cache");
        let fill = |floats: &[f32]| {
            let floats = swapped(floats, context, kv, d);
            let bytes: Vec<u8> = match format {
                KvFormat::F32 => bytemuck::pod_collect_to_vec(&floats),
                _ => floats.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
            };
            let buffer = room();
            gpu().upload(&buffer, [&bytes[..]]).expect("an upload");
            buffer
        };
        let caches: Vec<KvCache> =
            (0..REPEATS).map(|_| KvCache { k: fill(&keys), v: fill(&values), format, context }).collect();

        let scratch = KvCache { k: room(), v: room(), format, context };
        let qkv_floats = random.normals((t * (h + 2 * kv) * d) as usize, 1.0);
        let (qkv, turned) = (filled(t, (h + 2 * kv) * d, &qkv_floats), tensor(t, h * d));
        let no_norms = HeadNorms { q: None, k: None, eps: 0.0 };
        bench.run(
            &format!("rope_kv {format:?} [128, 9 + 3 + 3, 64]"),
            frame(0, t),
            Work::Bytes((t * (h + 2 * kv) * d * 4) as f64),
            |plan, _| kernels::rope_kv::rope_kv(plan, "q", &qkv, &angles, no_norms, kv, &turned, &scratch),
            || {
                let rows = qkv_floats.chunks(((h + 2 * kv) * d) as usize);
                let q: Vec<f32> = rows.flat_map(|row| &row[..(h * d) as usize]).copied().collect();
                check(&turned, t, &ops::rope(&q, &positions, h as usize, d as usize, &rope), 1e-4)
            },
        );
        let (q, y) = (filled(t, h * d, &q_floats), tensor(t, h * d));
        for (tokens, position) in [(1, 127), (1, 511), (1, 2047), (1, 8191), (t, 0), (t, 1920)] {
            let keys_seen = tokens * position + tokens * (tokens + 1) / 2;
            let work = match tokens {
                1 => Work::Bytes((2 * format.bytes(((position + 1) * width) as u64)) as f64),
                _ => Work::Flops(4.0 * (keys_seen * h * d) as f64),
            };
            let splits = Splits::new(gpu(), tokens, context, h, d).expect("room for parts");
            bench.run(
                &format!("attention {format:?} T {tokens} position {position}"),
                frame(position, tokens),
                work,
                |plan, i| kernels::attention::attention(plan, "y", &q, &caches[i], kv, d, &splits, &y, None),
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

    for (v, k) in [(49_152, 1), (49_152, 40), (49_152, 256), (151_936, 40)] {
        let logits_floats = random.normals(v as usize, 3.0);
        let logits = filled(1, v, &logits_floats);
        let (sample, ids) = (Sample::new(gpu(), v, 64).expect("room"), gpu().buffer("ids", 4).expect("room"));
        let sampling = Sampling { top_k: k, seed: Some(1), ..Sampling::default() };
        let mut sampler = Sampler::new(sampling.clone()).expect("a valid sampling");
        let settings = Settings { random: sampler.clone().random() as f32, ..Settings::of(&sampling, v) };
        gpu().queue().write_buffer(&sample.settings, 0, bytemuck::bytes_of(&settings));
        bench.run(
            &format!("sample {k} of {v}"),
            frame(0, 1),
            Work::Bytes(v as f64 * 4.0),
            |plan, _| kernels::sample::sample(plan, "sample", &logits, &sample, &ids),
            || {
                let got = block_on(gpu().read(&sample.chosen.buffer, 0, Chosen::BYTES)).map_err(|e| e.to_string())?;
                let want = Chosen::Id(sampler.pick(&mut logits_floats.clone(), &[]).map_err(|e| e.to_string())?);
                let got = Chosen::read(&got);
                if got == want { Ok(()) } else { Err(format!("{got:?} for {want:?}")) }
            },
        );
    }
}
