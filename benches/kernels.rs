//! Every kernel: checked against its reference, then timed. Beside each figure stands the device's own measured
//! ceiling, for reading (GB/s) or for multiply-adds (GFLOP/s); for y = W x also the ceiling of its mix: on a software GPU
//! the time to read the bytes and the time to do the multiply-adds, one after the other, since both take the same
//! processor's instructions; elsewhere the longer of the two.
//!
//! `cargo bench --bench kernels [-- PART_OF_A_NAME]`

#[path = "../tests/common/mod.rs"]
mod common;

use common::gpu::{buffer, filled, gpu, random_bytes, random_weight, swapped};
use common::{Random, close};
use peregrine::bench::{Ceilings, median};
use peregrine::formats::Format;
use peregrine::kernels::attention::Splits;
use peregrine::kernels::attention_backward::{
    AttentionBackward, Heads, attention_dkv, attention_dq, attention_sequence,
};
use peregrine::kernels::linear::{Finish, Input, linear};
use peregrine::kernels::optimizer::{Rates, Region, sums_of};
use peregrine::kernels::rms_norm::Rows;
use peregrine::kernels::rope_kv::{Angles, HeadNorms, KvCache};
use peregrine::kernels::sample::{Chosen, Sample, Settings};
use peregrine::kernels::swiglu::Lie;
use peregrine::kernels::{self, Gradient, KvFormat};
use peregrine::model::{Pairing, Rope};
use peregrine::plan::{Cost, Frame, PlanBuilder};
use peregrine::reference::optimizer::Moments;
use peregrine::reference::{self, backward, ops};
use peregrine::tensor::{Element, Tensor};
use peregrine::train::AdamW;
use peregrine::weight::{Vector, Weight};
use peregrine::{Error, Sampler, Sampling, block_on};
use std::time::Instant;

/// Dispatches of one timed pass: enough that submitting it weighs nothing. For matvec each has a W of its own, and
/// for attention its own keys and values, since a model's are seldom in the processor's cache when their turn comes; all
/// else works on what the cache may hold.
const REPEATS: u32 = 20;
/// Seconds of a timed pass that are enough.
const ENOUGH: f64 = 0.2;
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
    /// Whether a benchmark of this name is asked for.
    fn wants(&self, name: &str) -> bool {
        self.filter.as_ref().is_none_or(|part| name.contains(part.as_str()))
    }

    /// Runs one dispatch and `check`, then times many.
    fn run(
        &self,
        name: &str,
        frame: Frame,
        work: Work,
        step: impl Fn(&mut PlanBuilder, usize) -> Result<(), Error>,
        check: impl FnOnce() -> Result<(), String>,
    ) {
        if !self.wants(name) {
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
        let start = Instant::now();
        timed();
        // a slow kernel needs fewer
        let repeats = (REPEATS as f64 * ENOUGH / start.elapsed().as_secs_f64()).clamp(2.0, REPEATS as f64) as u32;
        let timed = pass(repeats);
        let cost = plan_cost(&step, frame.tokens);
        let (amount, unit) = match work {
            Work::Bytes(bytes) => (bytes, "GB/s"),
            Work::Flops(flops) => (flops, "GFLOP/s"),
        };
        let (mut all_seconds, mut ceilings, mut shares, mut mixed) = (vec![], vec![], vec![], vec![]);
        for _ in 0..ROUNDS {
            let at_best = block_on(Ceilings::measure(gpu())).expect("a measurement");
            let seconds = (0..PASSES).map(|_| timed()).fold(f64::INFINITY, f64::min) / repeats as f64;
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

/// Runs what later steps read, once.
fn run_once(tokens: u32, build: impl Fn(&mut PlanBuilder) -> Result<(), Error>) {
    common::gpu::run(gpu(), frame(0, tokens), |plan| build(plan)).expect("a valid step");
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
            let matvecs = ["matvec", "matvec of bytes"].map(|name| format!("{name} {} [{n}, {k}]", format.name()));
            if !matvecs.iter().any(|name| bench.wants(name)) {
                continue; // the copies take their time
            }
            let (bytes, floats) = random_bytes(format, &mut random, n, k);
            let upload = |_| Weight::upload(gpu(), "w", format, n, k, &bytes).expect("room for weights");
            let copies: Vec<Weight> = (0..REPEATS).map(upload).collect();
            let w = &copies[0];
            let x_floats = random.normals(k as usize, 1.0);
            let x = filled(1, k, &x_floats);
            let want = ops::matmul(&x_floats, &floats, 1, k as usize, n as usize);
            let y = tensor(1, n);
            bench.run(
                &matvecs[0],
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
                    &matvecs[1],
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
        let want = |t: u32| ops::matmul(&x_floats[..(t * k) as usize], &floats, t as usize, k as usize, n as usize);
        for t in [2, 4, 8, 32, t] {
            let y = tensor(t, n);
            bench.run(
                &format!("matmul {} [{t}, {k}] x [{n}, {k}]", format.name()),
                frame(0, t),
                Work::Flops(2.0 * (t * n) as f64 * k as f64),
                |plan, _| linear(plan, "y", &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y)),
                || check(&y, t, &want(t), 2e-3),
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
        |plan, _| kernels::swiglu::swiglu(plan, "y", &gate_up, Lie::Stacked, &y),
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

    let passes = [(1, 127), (1, 511), (1, 2047), (1, 8191), (t, 0), (t, 1920)];
    for format in [KvFormat::F32, KvFormat::F16] {
        let name = |tokens: u32, position: u32| format!("attention {format:?} T {tokens} position {position}");
        let turning = format!("rope_kv {format:?} [128, 9 + 3 + 3, 64]");
        if !bench.wants(&turning) && !passes.iter().any(|&(tokens, position)| bench.wants(&name(tokens, position))) {
            continue; // the caches take their time
        }
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
            &turning,
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
        for (tokens, position) in passes {
            let keys_seen = tokens * position + tokens * (tokens + 1) / 2;
            let work = match tokens {
                1 => Work::Bytes((2 * format.bytes(((position + 1) * width) as u64)) as f64),
                _ => Work::Flops(4.0 * (keys_seen * h * d) as f64),
            };
            let splits = Splits::new(gpu(), tokens, context, h, d).expect("room for parts");
            bench.run(
                &name(tokens, position),
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
    of_training(&bench, &mut random);
    of_attention(&bench, &mut random);
}

/// The kernels of training at SmolLM2's shapes, 128 tokens: a matrix forward, by x and by W, then what goes element by
/// element.
fn of_training(bench: &Bench, random: &mut Random) {
    let t = 128;
    // (what is added to a name, whether products are f32, how far off they may be)
    let halves = gpu().profile().matrix.map(|matrix| (format!(", {matrix:?}"), false, 0.2));
    let modes: Vec<(String, bool, f32)> = [(String::new(), true, 2e-3)].into_iter().chain(halves).collect();
    for (n, k) in [(1536, 576), (576, 1536)] {
        let [ts, ks, ns] = [t, k, n].map(|v| v as usize);
        let (x_floats, dy_floats) = (random.normals(ts * ks, 1.0), random.normals(ts * ns, 1.0));
        let (x, dy) = (filled(t, k, &x_floats), filled(t, n, &dy_floats));
        let work = || Work::Flops(2.0 * ts as f64 * ns as f64 * ks as f64);
        for format in [Format::F32, Format::F16, Format::Q4_1, Format::Q8_0, Format::Q4_K] {
            if k % format.block_weights() as u32 != 0 {
                continue; // rows of whole blocks only
            }
            let (w, floats) = random_weight(gpu(), format, random, n, k);
            let (y, dx) = (tensor(t, n), tensor(t, k));
            let row = |what: &str| format!("{what} {} [{t}] [{n}, {k}]", format.name());
            for (mode, exact, near) in &modes {
                bench.run(
                    &format!("{}{mode}", row("forward")),
                    frame(0, t),
                    work(),
                    |plan, _| {
                        plan.exact = *exact;
                        linear(plan, "y", &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y))
                    },
                    || check(&y, t, &ops::matmul(&x_floats, &floats, ts, ks, ns), *near),
                );
                bench.run(
                    &format!("{}{mode}", row("matmul_dx")),
                    frame(0, t),
                    work(),
                    |plan, _| {
                        plan.exact = *exact;
                        kernels::matmul_dx::matmul_dx(plan, "dx", &dy, &w, &dx, Gradient::Store)
                    },
                    || check(&dx, t, &backward::matmul_dx(&dy_floats, &floats, ts, ks, ns), *near),
                );
            }
        }
        let dw = tensor(n, k);
        for (mode, exact, near) in &modes {
            bench.run(
                &format!("matmul_dw [{t}] [{n}, {k}]{mode}"),
                frame(0, t),
                work(),
                |plan, _| {
                    plan.exact = *exact;
                    kernels::matmul_dw::matmul_dw(plan, "dw", &dy, &x, &dw, 0, Gradient::Store)
                },
                || check(&dw, n, &backward::matmul_dw(&dy_floats, &x_floats, ts, ks, ns), *near),
            );
        }
    }

    let c = 576;
    let count = (t * c) as usize;
    let [a, b, dy_floats] = [(); 3].map(|()| random.normals(count, 1.0));
    let gain_floats = random.normals(c as usize, 1.0);
    let gain = Vector::upload(gpu(), "gain", &gain_floats).expect("an upload");
    let bytes = (count * 4) as f64;
    let (x, dy, dx) = (filled(t, c, &a), filled(t, c, &dy_floats), tensor(t, c));
    let (dgain, inverses) = (tensor(1, c), tensor(t, 1));
    let (want_dx, want_dgain) = backward::rms_norm_backward(&a, &gain_floats, 1e-5, &dy_floats);
    let norm_backward = |plan: &mut PlanBuilder| {
        let to = Gradient::Store;
        kernels::rms_norm_backward::rms_norm_backward(plan, "dx", &x, &gain, 1e-5, &dy, &dx, to, &inverses)
    };
    bench.run(
        "rms_norm_backward [128, 576]",
        frame(0, t),
        Work::Bytes(3.0 * bytes),
        |plan, _| norm_backward(plan),
        || check(&dx, t, &want_dx, 1e-4),
    );
    run_once(t, norm_backward); // what the next one reads, whatever the filter leaves out
    bench.run(
        "rms_norm_dgain [128, 576]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan, _| {
            kernels::rms_norm_backward::rms_norm_dgain(plan, "dgain", &x, &dy, &inverses, &dgain, Gradient::Store)
        },
        || check(&dgain, 1, &want_dgain, 1e-3),
    );
    bench.run(
        "add_bias_backward [128, 576]",
        frame(0, t),
        Work::Bytes(bytes),
        |plan, _| kernels::add_bias_backward::add_bias_backward(plan, "dbias", &dy, &dgain, Gradient::Store),
        || check(&dgain, 1, &backward::add_bias_backward(&dy_floats, c as usize), 1e-3),
    );
    let scales = buffer(&vec![0.0f32; t as usize]);
    bench.run(
        "row_scale [128, 576]",
        frame(0, t),
        Work::Bytes(bytes),
        |plan, _| kernels::row_scale::row_scale(plan, "scales", (&dy).into(), &scales),
        || {
            let got = block_on(gpu().read(&scales, 0, t as u64 * 4)).map_err(|e| e.to_string())?;
            let want = backward::row_scale(&dy_floats, c as usize);
            close("scales", &bytemuck::pod_collect_to_vec(&got), &want, 0.0, 0.0).map(drop)
        },
    );
    let seed = buffer(&[1u32]);
    bench.run(
        "dropout [128, 576]",
        frame(0, t),
        Work::Bytes(2.0 * bytes),
        |plan, _| kernels::dropout::dropout(plan, "y", &x, 0.1, &seed, 1, &dx, Gradient::Store),
        || {
            let y = block_on(dx.read(gpu(), t)).map_err(|e| e.to_string())?;
            let want: Vec<f32> = y.iter().zip(&a).map(|(y, x)| if *y == 0.0 { 0.0 } else { x / 0.9 }).collect();
            close("y", &y, &want, 0.0, 1e-6).map(drop)
        },
    );

    let joined: Vec<f32> = a.iter().zip(&b).flat_map(|(a, b)| [*a, *b]).collect();
    let (gate_up, dgate_up) = (filled(t, 2 * c, &joined), tensor(t, 2 * c));
    let (dgate, dup) = backward::swiglu_backward(&a, &b, &dy_floats);
    bench.run(
        "swiglu_backward [128, 576]",
        frame(0, t),
        Work::Bytes(5.0 * bytes),
        |plan, _| kernels::swiglu_backward::swiglu_backward(plan, "d", &gate_up, Lie::Alternating, &dy, &dgate_up),
        || {
            let want: Vec<f32> = dgate.iter().zip(&dup).flat_map(|(g, u)| [*g, *u]).collect();
            check(&dgate_up, t, &want, 1e-4)
        },
    );

    let v = 8192; // a shard of the vocabulary
    let logits_floats = random.normals((t * v) as usize, 3.0);
    let labels_of = random.ids(t as usize, v);
    let (logits, labels) = (filled(t, v, &logits_floats), buffer(&labels_of));
    let seen = buffer(&vec![[0.0f32; 4]; t as usize]);
    let shares_of = random.normals(t as usize, 1.0);
    let shares = buffer(&shares_of);
    let loss = |plan: &mut PlanBuilder, logits: &Tensor| {
        kernels::cross_entropy::cross_entropy(plan, "loss", logits, 0, &labels, &seen)
    };
    bench.run(
        "cross_entropy [128, 8192]",
        frame(0, t),
        Work::Bytes((t * v * 4) as f64),
        |plan, _| loss(plan, &logits),
        || {
            let bytes = block_on(gpu().read(&seen, 0, t as u64 * 16)).map_err(|e| e.to_string())?;
            let got: Vec<[f32; 4]> = bytemuck::pod_collect_to_vec(&bytes);
            let got: Vec<f32> = got.iter().map(|seen| seen[3]).collect();
            close("loss", &got, &backward::cross_entropy(&logits_floats, &labels_of, v as usize), 1e-3, 1e-4).map(drop)
        },
    );
    run_once(t, |plan| loss(plan, &logits));
    // in place, so that after the first time it is worked on gradients, at the same cost
    bench.run(
        "cross_entropy_backward [128, 8192]",
        frame(0, t),
        Work::Bytes((2 * t * v * 4) as f64),
        |plan, _| kernels::cross_entropy::cross_entropy_backward(plan, "d", &logits, 0, &labels, &shares, &seen),
        || {
            let want = backward::cross_entropy_backward(&logits_floats, &labels_of, v as usize, &shares_of);
            check(&logits, t, &want, 1e-5)
        },
    );

    let (rows, cols) = (1536, 576);
    let count = (rows * cols) as usize;
    let [w_floats, gradient_floats] = [(); 2].map(|()| random.normals(count, 1.0));
    let [w, gradient] = [&w_floats, &gradient_floats].map(|floats| filled(rows, cols, floats));
    let [means, squares] = [(); 2].map(|()| tensor(rows, cols));
    let rates = buffer(&[Rates {
        rate: 0.001,
        clip: 1.0,
        decay: 0.01,
        beta1: 0.9,
        beta2: 0.999,
        eps: 1e-8,
        lacks1: 0.1,
        lacks2: 0.001,
    }]);
    let region = Region::rows(&w, 0, rows);
    bench.run(
        "adamw [1536, 576]",
        frame(0, 1),
        Work::Bytes((7 * count * 4) as f64),
        |plan, _| kernels::optimizer::adamw(plan, "w", &rates, region, true, &gradient, &w, &means, &squares),
        || {
            let (mut want, settings) = (w_floats.clone(), AdamW::default());
            reference::optimizer::adamw(&mut want, &gradient_floats, &mut Moments::new(count), &settings, 0.001, 1);
            check(&w, rows, &want, 1e-6)
        },
    );
    let momenta = tensor(rows, cols);
    let before = block_on(w.read(gpu(), rows)).expect("weights");
    bench.run(
        "sgd [1536, 576]",
        frame(0, 1),
        Work::Bytes((5 * count * 4) as f64),
        |plan, _| kernels::optimizer::sgd(plan, "w", &rates, region, true, &gradient, &w, &momenta),
        || {
            let mut want = before.clone();
            reference::optimizer::sgd(&mut want, &gradient_floats, &mut vec![0.0; count], 0.9, 0.01, 0.001);
            check(&w, rows, &want, 1e-6)
        },
    );
    let sums = buffer(&vec![0.0f32; sums_of(region) as usize]);
    bench.run(
        "sum_of_squares [1536, 576]",
        frame(0, 1),
        Work::Bytes((count * 4) as f64),
        |plan, _| kernels::optimizer::sum_of_squares(plan, "norm", &gradient, region, &sums, 0),
        || {
            let bytes = block_on(gpu().read(&sums, 0, sums_of(region) as u64 * 4)).map_err(|e| e.to_string())?;
            let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
            let want: f64 = gradient_floats.iter().map(|&g| g as f64 * g as f64).sum();
            close("the sum", &[got.iter().sum()], &[want as f32], 0.0, 1e-5).map(drop)
        },
    );
}

/// Attention of one sequence of 512 tokens and its gradients, at SmolLM2's shape.
fn of_attention(bench: &Bench, random: &mut Random) {
    let (t, h, kv, d) = (512, 9, 3, 64);
    let shape = Heads { heads: h, kv_heads: kv, head_size: d };
    let (width, y_width) = ((h + 2 * kv) * d, h * d);
    let [hs, kvs, ds] = [h, kv, d].map(|v| v as usize);
    let [q, k, v] = [h, kv, kv].map(|heads| random.normals((t * heads * d) as usize, 1.0));
    let dy_floats = random.normals((t * y_width) as usize, 1.0);
    let side_by_side = |q: &[f32], k: &[f32], v: &[f32]| -> Vec<f32> {
        let rows = q.chunks(hs * ds).zip(k.chunks(kvs * ds)).zip(v.chunks(kvs * ds));
        rows.flat_map(|((q, k), v)| [q, k, v].concat()).collect()
    };
    let qkv_floats = side_by_side(&q, &k, &v);
    let (qkv, dy) = (filled(t, width, &qkv_floats), filled(t, y_width, &dy_floats));
    let (y, dqkv) = (tensor(t, y_width), tensor(t, width));
    let [log_sums, means] = [(); 2].map(|()| buffer(&vec![0.0f32; (t * h) as usize]));
    let bounds = buffer(&vec![[0, t]; t as usize]);
    let products = |n: u32| Work::Flops((n * 2 * h * d) as f64 * (t * (t + 1) / 2) as f64);
    let forward = |plan: &mut PlanBuilder| attention_sequence(plan, "attn", shape, &bounds, &qkv, &y, &log_sums);
    let of = AttentionBackward {
        shape,
        bounds: &bounds,
        qkv: &qkv,
        dy: &dy,
        log_sums: &log_sums,
        means: &means,
        dqkv: &dqkv,
    };
    let backward_q = |plan: &mut PlanBuilder| attention_dq(plan, "dq", of, &y);
    bench.run(
        "attention_sequence T 512",
        frame(0, t),
        products(2),
        |plan, _| forward(plan),
        || check(&y, t, &ops::attention(&q, &k, &v, 0, hs, kvs, ds), 1e-4),
    );
    run_once(t, forward);
    let want = || {
        let (dq, dk, dv) = backward::attention_backward(&q, &k, &v, hs, kvs, ds, &dy_floats);
        side_by_side(&dq, &dk, &dv)
    };
    // columns of the queries first, then those of keys and values
    let check_columns = |from: usize, to: usize| {
        let got = block_on(dqkv.read(gpu(), t)).map_err(|e| e.to_string())?;
        let cut =
            |x: &[f32]| -> Vec<f32> { x.chunks(width as usize).flat_map(|row| &row[from..to]).copied().collect() };
        close("gradient", &cut(&got), &cut(&want()), 1e-4, 1e-3).map(drop)
    };
    bench.run(
        "attention_dq T 512",
        frame(0, t),
        products(3),
        |plan, _| backward_q(plan),
        || check_columns(0, y_width as usize),
    );
    run_once(t, backward_q);
    bench.run(
        "attention_dkv T 512",
        frame(0, t),
        products(4),
        |plan, _| attention_dkv(plan, "dkv", of),
        || check_columns(y_width as usize, width as usize),
    );

    let inv_freq = (0..d / 2).map(|i| 1e5f32.powf(-2.0 * i as f32 / d as f32)).collect();
    let turning = Rope { dims: ds, inv_freq, magnitude: 1.0, pairing: Pairing::Neighbours };
    let angles = Angles::upload(gpu(), &turning, t).expect("an upload");
    let positions_of: Vec<u32> = (0..t).collect();
    let (positions, inverses) = (buffer(&positions_of), tensor(t, h + kv));
    let gain_floats = random.normals(ds, 1.0);
    let gain = Vector::upload(gpu(), "gain", &gain_floats).expect("an upload");
    let bytes = (t * width * 4) as f64;
    for (name, norms) in [
        ("rope", HeadNorms { q: None, k: None, eps: 1e-5 }),
        ("rope, normed", HeadNorms { q: Some(&gain), k: Some(&gain), eps: 1e-5 }),
    ] {
        let turned = |x: &[f32], heads: usize| {
            let x = if norms.q.is_some() { ops::rms_norm(x, &gain_floats, 1e-5) } else { x.to_vec() };
            ops::rope(&x, &positions_of, heads, ds, &turning)
        };
        bench.run(
            &format!("{name} [512, 9 + 3 + 3, 64]"),
            frame(0, t),
            Work::Bytes(2.0 * bytes),
            |plan, _| kernels::rope::rope(plan, "q", shape, &qkv, &angles, norms, &positions, &dqkv, &inverses),
            || check(&dqkv, t, &side_by_side(&turned(&q, hs), &turned(&k, kvs), &v), 1e-4),
        );
    }
    let norms = HeadNorms { q: Some(&gain), k: Some(&gain), eps: 1e-5 };
    let dqkv_floats = random.normals((t * width) as usize, 1.0);
    let in_place = filled(t, width, &dqkv_floats);
    let part = |x: &[f32], from: usize, heads: usize| -> Vec<f32> {
        x.chunks(width as usize).flat_map(|row| &row[from * ds..][..heads * ds]).copied().collect()
    };
    let [dq, dk, dv] = [(0, hs), (hs, kvs), (hs + kvs, kvs)].map(|(from, heads)| part(&dqkv_floats, from, heads));
    bench.run(
        "rope_backward [512, 9 + 3, 64]",
        frame(0, t),
        Work::Bytes(2.0 * (t * (h + kv) * d * 4) as f64),
        |plan, _| kernels::rope_backward::rope_backward(plan, "d", &angles, &positions, h + kv, d, &in_place),
        || {
            let back = |x: &[f32], heads| backward::rope_backward(x, &positions_of, heads, ds, &turning);
            check(&in_place, t, &side_by_side(&back(&dq, hs), &back(&dk, kvs), &dv), 1e-4)
        },
    );
    run_once(t, |plan| kernels::rope::rope(plan, "q", shape, &qkv, &angles, norms, &positions, &dqkv, &inverses));
    let in_place = filled(t, width, &dqkv_floats);
    bench.run(
        "heads_norm_backward [512, 9 + 3, 64]",
        frame(0, t),
        Work::Bytes(3.0 * (t * (h + kv) * d * 4) as f64),
        |plan, _| {
            kernels::heads_norm_backward::heads_norm_backward(plan, "d", shape, &qkv, &inverses, norms, &in_place)
        },
        || {
            let back = |x: &[f32], dy: &[f32]| backward::rms_norm_backward(x, &gain_floats, 1e-5, dy).0;
            check(&in_place, t, &side_by_side(&back(&q, &dq), &back(&k, &dk), &dv), 1e-4)
        },
    );
}
