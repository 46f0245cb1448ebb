//! Taps: what they read against the reference's intermediates in every mode, their statistics against sums of what was
//! read, CKA against its definition; and the two kernels of their own.

mod common;

use common::cases::chain;
use common::gpu::*;
use common::tiny::TinyModel;
use common::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::add::add;
use peregrine::kernels::statistics::{PART, parts_of, statistics};
use peregrine::model::adapters::Pair;
use peregrine::model::{Adapters, Architecture};
use peregrine::plan::Plan;
use peregrine::reference::{ReferenceModel, ops};
use peregrine::taps::{Tap, Taps, extend};
use peregrine::{Activation, Error, Gguf, Gpu, Model, Profile, Session, SessionOptions, Tapped, block_on, linear_cka};
use std::collections::HashMap;
use std::sync::Arc;

const VOCAB: u32 = 203;

fn load(gpu: &Gpu, gguf: &Gguf) -> Model {
    block_on(Model::load(gpu, gguf, |_, _| ())).unwrap()
}

/// Passes of up to 16 tokens, so that prompts take several.
fn exact() -> SessionOptions {
    SessionOptions { exact: true, context: Some(64), chunk: Some(16), ..Default::default() }
}

/// Every tap's numbers [T, cols] on the CPU.
fn reference(gguf: &Gguf, ids: &[u32]) -> HashMap<String, Vec<f32>> {
    let mut all = HashMap::new();
    let mut model = ReferenceModel::<f32>::from_gguf(gguf).unwrap();
    let mut trace = |label: &str, values: &[f32]| {
        // a bias follows its matrix, and then counts
        let name = label.replace(".bias", "").replace("attn_output", "attn_out");
        let name = name.replace("ffn_down", "ffn_out").replace("ffn_residual", "resid_post");
        all.insert(name, values.to_vec());
    };
    model.append_traced(ids, &mut trace).unwrap();
    all
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Mode {
    Prefill,
    AllLogits,
    Decode,
    Sequence,
    /// Each token as a sequence of its own, which is another thing.
    SequenceOfOne,
}

/// What the taps give for the tokens, and the logits: [1, V] after a prefill, else [T, V].
fn run_tapped(
    model: &Model,
    options: &SessionOptions,
    mode: Mode,
    ids: &[u32],
    patterns: &[&str],
) -> (Vec<Tapped>, Vec<f32>) {
    let mut logits = Vec::new();
    if let Mode::Sequence | Mode::SequenceOfOne = mode {
        let most = if mode == Mode::SequenceOfOne { 1 } else { 64 };
        let mut sequences = model.sequences(most, most).unwrap();
        patterns.iter().for_each(|pattern| sequences.tap(pattern).unwrap());
        let mut all = Vec::new();
        for ids in if mode == Mode::SequenceOfOne { ids.chunks(1) } else { ids.chunks(ids.len()) } {
            let each = |_, row: &[f32]| logits.extend_from_slice(row);
            extend(&mut all, block_on(sequences.run(&[ids], None, each)).unwrap());
        }
        return (all, logits);
    }
    let mut session = model.session(options).unwrap();
    patterns.iter().for_each(|pattern| session.tap(pattern).unwrap());
    let mut all = Vec::new();
    match mode {
        Mode::AllLogits => {
            block_on(session.append_all(ids, |_, row| logits.extend_from_slice(row))).unwrap();
            all = session.tapped().to_vec();
        }
        Mode::Prefill => {
            block_on(session.append(ids)).unwrap();
            all = session.tapped().to_vec();
            logits = block_on(session.logits()).unwrap();
        }
        _ => {
            for &id in ids {
                block_on(session.append(&[id])).unwrap();
                extend(&mut all, session.tapped().to_vec());
                logits.extend(block_on(session.logits()).unwrap());
            }
        }
    }
    (all, logits)
}

/// Of two representations of one thing: relative to the largest number.
fn close_to_largest(name: &str, got: &[f32], want: &[f32], rel: f32) -> Result<(), String> {
    let largest = want.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    close(name, got, want, rel * largest, 0.0).map(drop)
}

/// Whether the taps are those wanted, in order, with the reference's numbers.
fn check(tapped: &[Tapped], names: &[String], want: &HashMap<String, Vec<f32>>) -> Result<(), String> {
    let got: Vec<&String> = tapped.iter().map(|tapped| &tapped.name).collect();
    if got != names.iter().collect::<Vec<_>>() {
        return Err(format!("taps {got:?}, expected {names:?}"));
    }
    for Tapped { name, activation: Activation { rows, cols, values }, .. } in tapped {
        if values.len() != (rows * cols) as usize {
            return Err(format!("{name}: {} numbers in [{rows}, {cols}]", values.len()));
        }
        let want = &want[name];
        // after a prefill the logits are the last token's
        let want = if name == "logits" && *rows == 1 { &want[want.len() - VOCAB as usize..] } else { want };
        close_to_largest(name, values, want, 1e-4)?;
    }
    Ok(())
}

const MODES: [Mode; 4] = [Mode::Prefill, Mode::AllLogits, Mode::Decode, Mode::Sequence];

#[test]
fn taps_equal_the_reference() {
    let mut table = Table::new("taps");
    let patterns: [&[&str]; 10] = [
        &["*"],
        &["blk.*.attn_norm"],
        &["blk.*.attn_out"],
        &["blk.*.ffn_norm"],
        &["blk.*.ffn_out"],
        &["blk.*.resid_post"],
        &["blk.0.resid_post", "blk.1.ffn_out"],
        &["blk.1.*_norm", "blk.0.attn_norm", "logits"],
        &["blk.0.*"],
        &["logits"],
    ];
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let other_bias = architecture == Architecture::Qwen2;
        let gguf = TinyModel { other_bias, ..TinyModel::new(architecture, Format::F32, 17) }.gguf();
        let ids = Random::new(5).ids(37, VOCAB); // two whole passes, and five tokens or one
        let model = load(gpu(), &gguf);
        let want = reference(&gguf, &ids);
        let ids_33 = &ids[..33];
        let want_33 = reference(&gguf, ids_33);
        for mode in MODES {
            for patterns in patterns {
                let mut taps = Taps::default();
                patterns.iter().for_each(|pattern| taps.add(model.config(), pattern).unwrap());
                let names: Vec<String> = taps.list().iter().map(|tap| tap.name()).collect();
                for (ids, want) in [(&ids[..], &want), (ids_33, &want_33)] {
                    if mode == Mode::Decode && ids.len() > 33 {
                        continue; // passes of one token, whatever their number
                    }
                    let (tapped, logits) = run_tapped(&model, &exact(), mode, ids, patterns);
                    let outcome = check(&tapped, &names, want).and_then(|()| {
                        let want = &want["logits"];
                        close_to_largest("logits of the session", &logits, &want[want.len() - logits.len()..], 1e-4)
                    });
                    let row = format!("{}, {mode:?}, {patterns:?}, T {}", architecture.name(), ids.len());
                    table.row(&row, outcome);
                }
            }
        }
        // a pass of one token without a cache
        let (tapped, _) = run_tapped(&model, &exact(), Mode::SequenceOfOne, &ids[..5], &["*"]);
        let mut alone: HashMap<String, Vec<f32>> = HashMap::new();
        for id in &ids[..5] {
            for (name, values) in reference(&gguf, &[*id]) {
                alone.entry(name).or_default().extend(values);
            }
        }
        let names: Vec<String> = Tap::all(model.config()).map(Tap::name).collect();
        table.row(&format!("{}, one token", architecture.name()), check(&tapped, &names, &alone));
    }
    table.finish();
}

/// Every profile, and the one that multiplies bytes where nothing is tapped.
#[test]
fn taps_under_every_profile() {
    let mut table = Table::new("profiles");
    let gguf = TinyModel::new(Architecture::Qwen3, Format::Q4_K, 19).gguf();
    let ids = Random::new(6).ids(21, VOCAB);
    let want = reference(&gguf, &ids);
    let bytes = Profile { lanes: true, eights: false, int8: true, ..gpu().profile() };
    let all = profiles().into_iter().chain([("bytes".to_string(), gpu().with_profile(bytes))]);
    for (profile, gpu) in all {
        let model = load(&gpu, &gguf);
        let names: Vec<String> = Tap::all(model.config()).map(Tap::name).collect();
        // not exact, but for the cache: as the profile would have it
        let options = SessionOptions { exact: false, kv: peregrine::KvFormat::F32, ..exact() };
        for mode in MODES {
            let (tapped, _) = run_tapped(&model, &options, mode, &ids, &["*"]);
            table.row(&format!("{profile}, {mode:?}"), check(&tapped, &names, &want));
        }
    }
    table.finish();
}

/// The stream is the sum of its branches, adapters included, and the logits are those of a session without taps.
#[test]
fn branches_add_up_with_adapters() {
    let mut table = Table::new("adapters");
    let gguf = TinyModel::new(Architecture::Llama, Format::Q8_0, 23).gguf();
    let ids = Random::new(7).ids(19, VOCAB);
    let plain = load(gpu(), &gguf);
    let mut random = Random::new(8);
    let halves: HashMap<(usize, &str), [Vec<f32>; 2]> = (0..2)
        .flat_map(|b| peregrine::model::Target::ALL.map(|target| (b, target)))
        .map(|(b, target)| {
            let (n, k) = target.shape(plain.config(), b);
            let half = |count: u32, random: &mut Random| random.normals((count * 4) as usize, 0.1);
            ((b, target.name()), [half(k, &mut random), half(n, &mut random)])
        })
        .collect();
    let adapters = Adapters::new(gpu(), plain.config(), plain.weights(), |b, target| {
        let [a, up] = &halves[&(b, target.name())];
        Ok(Some(Pair { a, b: up, rank: 4, scale: 2.0 }))
    })
    .unwrap();
    let model = plain.with_adapters(Some(Arc::new(adapters)));
    let without = |model: &Model| {
        let mut logits = Vec::new();
        let mut session = model.session(&exact()).unwrap();
        block_on(session.append_all(&ids, |_, row| logits.extend_from_slice(row))).unwrap();
        assert!(session.tapped().is_empty());
        logits
    };
    let want = without(&model);
    assert!(close_to_largest("adapted", &want, &without(&plain), 1e-2).is_err(), "the adapters do something");
    for mode in MODES {
        let (tapped, logits) = run_tapped(&model, &exact(), mode, &ids, &["blk.*"]);
        let of: HashMap<&str, &Vec<f32>> = tapped.iter().map(|t| (t.name.as_str(), &t.activation.values)).collect();
        let sum = ops::add(&ops::add(of["blk.0.resid_post"], of["blk.1.attn_out"]), of["blk.1.ffn_out"]);
        let outcome = close_to_largest("logits", &logits, &want[want.len() - logits.len()..], 1e-4)
            .and_then(|()| close_to_largest("the stream", of["blk.1.resid_post"], &sum, 1e-6));
        table.row(&format!("{mode:?}"), outcome);
    }
    table.finish();
}

/// In f64, of what was read.
fn check_statistics(tapped: &Tapped) -> Result<(), String> {
    let numbers: Vec<f64> = tapped.activation.values.iter().filter(|v| !v.is_nan()).map(|&v| v as f64).collect();
    let n = numbers.len() as f64;
    let largest = numbers.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    let s = &tapped.statistics;
    if (s.nan, s.count) != ((tapped.activation.values.len() - numbers.len()) as u64, numbers.len() as u64) {
        return Err(format!("{}: {} numbers, {} NaN", tapped.name, s.count, s.nan));
    }
    for (what, got, want, size) in [
        ("l2", s.l2(), numbers.iter().map(|v| v * v).sum::<f64>().sqrt(), None),
        ("min", s.min as f64, numbers.iter().fold(f64::INFINITY, |a, b| a.min(*b)), None),
        ("max", s.max as f64, numbers.iter().fold(f64::NEG_INFINITY, |a, b| a.max(*b)), None),
        ("mean", s.mean(), numbers.iter().sum::<f64>() / n, Some(largest)),
        ("mean abs", s.mean_abs(), numbers.iter().map(|v| v.abs()).sum::<f64>() / n, None),
    ] {
        // a mean near zero is right to what its summands are right to
        let near = (got - want).abs() <= 1e-5 * size.unwrap_or(want.abs());
        if !near {
            return Err(format!("{}: {what} is {got}, expected {want}", tapped.name));
        }
    }
    Ok(())
}

#[test]
fn statistics_are_those_of_the_numbers_read() {
    let mut table = Table::new("statistics");
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let model = load(gpu(), &TinyModel::new(architecture, Format::Q8_0, 29).gguf());
        let ids = Random::new(9).ids(35, VOCAB);
        for mode in MODES {
            for tapped in run_tapped(&model, &exact(), mode, &ids, &["*"]).0 {
                table.row(&format!("{}, {mode:?}, {}", architecture.name(), tapped.name), check_statistics(&tapped));
            }
        }
    }
    // a NaN in one weight goes on from where it stands
    let tiny = TinyModel::new(Architecture::Llama, Format::F32, 31);
    let mut tensors = tiny.tensors();
    let gain = tensors.iter_mut().find(|t| t.name == "blk.1.attn_norm.weight").unwrap();
    gain.bytes[8..12].copy_from_slice(&f32::NAN.to_le_bytes());
    let model = load(gpu(), &tiny.gguf_of(&tensors));
    let (tapped, _) = run_tapped(&model, &exact(), Mode::Prefill, &[1, 2, 3], &["blk.*"]);
    for (tapped, nan) in tapped.iter().zip([0, 0, 0, 0, 0, 3, 180, 180, 180, 180]) {
        let outcome = if tapped.statistics.nan == nan { Ok(()) } else { Err(format!("{:?}", tapped.statistics)) };
        table.row(&format!("{} of damaged weights", tapped.name), outcome);
        let all_nan = tapped.statistics.count == 0;
        assert_eq!(all_nan, tapped.statistics.min.is_nan() && tapped.statistics.mean().is_nan(), "{}", tapped.name);
    }
    table.finish();
}

#[test]
fn statistics_kernel() {
    let mut table = Table::new("statistics kernel");
    for (profile, gpu) in profiles() {
        for (t, cols) in [(1, 1), (1, 31), (3, 64), (2, 4096), (3, 4097), (1, 50_000), (33, 97), (2, 8193)] {
            let mut random = Random::new((t * 7919 + cols) as u64);
            let mut floats = random.normals((t * cols) as usize, 3.0);
            for _ in 0..floats.len() / 10 {
                floats[random.below(t * cols) as usize] = f32::from_bits(0x7f800001 | random.below(2) << 31);
            }
            let (x, first) = (filled(t, cols, &floats), 8);
            let floats_of_parts = t * parts_of(cols) * PART;
            let parts = poisoned(1, first + floats_of_parts);
            let outcome = run(&gpu, frame(0, t), |plan| statistics(plan, "parts", &x, &parts, first)).and_then(|()| {
                let got = read_guarded(&parts, 1);
                if got[..first as usize].iter().any(|v| !v.is_nan()) {
                    return Err("what lies before was written".into());
                }
                let parts = got[first as usize..].chunks((parts_of(cols) * PART) as usize);
                for (row, parts) in floats.chunks(cols as usize).zip(parts) {
                    for (tile, part) in row.chunks(4096).zip(parts.chunks(PART as usize)) {
                        let numbers: Vec<f64> = tile.iter().filter(|v| !v.is_nan()).map(|&v| v as f64).collect();
                        let sum = |f: fn(f64) -> f64| numbers.iter().map(|&v| f(v)).sum::<f64>() as f32;
                        let sizes = sum(f64::abs);
                        let most = |f: fn(f64) -> f64| {
                            numbers.iter().map(|&v| f(v) as f32).fold(-f32::from_bits(0x7f7fffff), f32::max)
                        };
                        let nan = (tile.len() - numbers.len()) as f32;
                        close("sum of squares, of sizes", &[part[0], part[2]], &[sum(|v| v * v), sizes], 0.0, 3e-6)?;
                        close("sum", &part[1..2], &[sum(|v| v)], 3e-6 * sizes, 0.0)?;
                        close("NaN and extremes", &part[3..6], &[nan, most(|v| v), most(|v| -v)], 0.0, 0.0)?;
                    }
                }
                Ok(())
            });
            table.row(&format!("[{t}, {cols}], {profile}"), outcome);
        }
    }
    table.finish();
}

#[test]
fn add_kernel() {
    let mut table = Table::new("add");
    for (profile, gpu) in profiles() {
        for (t, cols) in [(1, 1), (3, 31), (8, 64), (33, 97), (2, 1757)] {
            let mut random = Random::new((t * 31 + cols) as u64);
            let [a, b] = [(); 2].map(|()| random.normals((t * cols) as usize, 1.0));
            let (x, branch, y) = (filled(t, cols, &a), filled(t, cols, &b), poisoned(t, cols));
            let outcome = run(&gpu, frame(0, t), |plan| add(plan, "y", &x, &branch, &y))
                .and_then(|()| close("y", &read_guarded(&y, t), &ops::add(&a, &b), 0.0, 0.0));
            table.row(&format!("[{t}, {cols}], {profile}"), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn patterns() {
    let model = load(gpu(), &TinyModel { blocks: 12, ..TinyModel::new(Architecture::Llama, Format::F32, 37) }.gguf());
    let config = model.config();
    let names = |patterns: &[&str]| -> Result<Vec<String>, Error> {
        let mut taps = Taps::default();
        for pattern in patterns {
            taps.add(config, pattern)?;
        }
        Ok(taps.list().iter().map(|tap| tap.name()).collect())
    };
    let mut table = Table::new("patterns");
    for (patterns, want) in [
        (&["logits"][..], &["logits"][..]),
        (&["blk.11.*_norm"], &["blk.11.attn_norm", "blk.11.ffn_norm"]),
        (&["*.0.*out"], &["blk.0.attn_out", "blk.0.ffn_out"]),
        (&["*1.resid*"], &["blk.1.resid_post", "blk.11.resid_post"]),
        // in the order of a pass, each once
        (
            &["logits", "blk.1*.ffn_out", "blk.2.attn_out", "l*", "blk.10.*n_out"],
            &["blk.1.ffn_out", "blk.2.attn_out", "blk.10.attn_out", "blk.10.ffn_out", "blk.11.ffn_out", "logits"],
        ),
    ] {
        let got = names(patterns).unwrap();
        table.row(&format!("{patterns:?}"), if got == want { Ok(()) } else { Err(format!("{got:?}")) });
    }
    assert_eq!(names(&["*"]).unwrap().len(), 12 * 5 + 1);
    assert_eq!(names(&["blk*t"]).unwrap().len(), 12 * 3);
    for pattern in ["", "blk.12.attn_norm", "attn_norm", "blk.*.resid", "logits.*", "blk.0.attn_norm*norm", "*s*s"] {
        let error = names(&[pattern]).map(drop).unwrap_err();
        let text = chain(&error);
        let told = matches!(error, Error::Argument { .. })
            && [pattern, "N from 0 to 11", "logits", "resid_post"].iter().all(|word| text.contains(word));
        table.row(&format!("{pattern:?}"), if told { Ok(()) } else { Err(text) });
    }
    // a bad one leaves the session as it was
    let mut session = model.session(&exact()).unwrap();
    session.tap("logits").unwrap();
    block_on(session.append(&[1, 2])).unwrap();
    assert!(session.tap("blk.12.*").is_err());
    assert_eq!(session.tapped().len(), 1);
    table.finish();
}

fn steps(plan: &Plan) -> Vec<String> {
    plan.steps.iter().map(|step| format!("{} {} {:?}", step.label, step.kernel.name, step.grid)).collect()
}

/// (label without the block, kernel) of a plan of two blocks, in which steps marked `0` are the first block's alone.
fn labels(head: &[&str], block: &[&str], tail: &[&str]) -> Vec<String> {
    let of_block = |b: usize| {
        let own = block.iter().filter(move |step| b == 0 || !step.starts_with('0'));
        own.map(move |step| format!("blk.{b}.{}", step.trim_start_matches('0')))
    };
    let own = |steps: &[&str]| steps.iter().map(|step| step.to_string()).collect::<Vec<_>>();
    [own(head), (0..2).flat_map(of_block).collect(), own(tail)].concat()
}

/// Without taps the plans are step by step what they were before there were taps, and are so again afterwards.
#[test]
fn no_taps_no_steps() {
    let gguf = TinyModel::new(Architecture::Llama, Format::F32, 41).gguf();
    let lanes = Profile { lanes: true, subgroups: false, eights: false, int8: false, matrix: None, chunk: 128 };
    let model = load(&gpu().with_profile(lanes), &gguf);
    let mut session = model.session(&exact()).unwrap();
    let named = |plan: &Plan| -> Vec<String> {
        plan.steps.iter().map(|step| format!("{} {}", step.label, step.kernel.name)).collect()
    };
    let decode = [
        "0attn_norm rms_norm",
        "attn_qkv matvec_lane",
        "rope_kv rope_kv",
        "attn attention_lane",
        "attn_residual matvec_lane",
        "swiglu matvec_lane",
        "ffn_residual matvec_lane",
    ];
    assert_eq!(named(session.plan()), labels(&["embed embed"], &decode, &["logits matvec_lane"]));
    let prefill = [
        "attn_norm rms_norm",
        "attn_qkv matmul_lane",
        "rope_kv rope_kv",
        "attn attention_lane",
        "attn_residual matmul_lane",
        "ffn_norm rms_norm",
        "swiglu matmul_lane",
        "ffn_residual matmul_lane",
    ];
    let tail = ["output_norm rms_norm", "logits matvec_lane"];
    assert_eq!(named(session.prefill_plan()), labels(&["embed embed"], &prefill, &tail));

    let before = [steps(session.plan()), steps(session.prefill_plan())];
    let both = |session: &Session| [steps(session.plan()), steps(session.prefill_plan())];
    session.tap("logits").unwrap();
    assert_eq!(both(&session), before, "logits lie ready in any case");
    session.tap("blk.1.attn_out").unwrap();
    assert_ne!(both(&session), before);
    let ids = Random::new(10).ids(20, VOCAB);
    block_on(session.append(&ids)).unwrap();
    let tapped = block_on(session.logits()).unwrap();
    // tokens, caches and logits stay when taps come and go
    session.untap().unwrap();
    assert_eq!(both(&session), before);
    assert!(session.tapped().is_empty());
    assert_eq!((session.position(), block_on(session.logits()).unwrap()), (20, tapped));
    block_on(session.append(&[7])).unwrap();
    let want = ReferenceModel::<f32>::from_gguf(&gguf).unwrap().append(&[&ids[..], &[7]].concat()).unwrap();
    let want = &want[20 * VOCAB as usize..];
    close_to_largest("after taps", &block_on(session.logits()).unwrap(), want, 1e-4).unwrap();
}

/// A generation is not read, and leaves nothing that an append before it gave.
#[test]
fn a_generation_is_the_same_with_taps() {
    let model = load(gpu(), &TinyModel::new(Architecture::Qwen2, Format::Q8_0, 43).gguf());
    let generate = |session: &mut Session| -> Vec<u32> {
        block_on(session.append(&[3, 4, 5])).unwrap();
        let options = peregrine::GenerateOptions { max_tokens: Some(12), ..Default::default() };
        let options = peregrine::GenerateOptions {
            sampling: peregrine::Sampling { seed: Some(3), ..Default::default() },
            ..options
        };
        session.generate(options).unwrap().collect::<Result<_, _>>().unwrap()
    };
    let want = generate(&mut model.session(&exact()).unwrap());
    let mut session = model.session(&exact()).unwrap();
    session.tap("*").unwrap();
    assert_eq!(generate(&mut session), want);
    assert!(session.tapped().is_empty());
    block_on(session.append(&[9])).unwrap();
    assert!(session.tapped().iter().all(|tapped| tapped.activation.rows == 1));
}

fn activation(rows: u32, values: Vec<f32>) -> Activation {
    Activation { rows, cols: values.len() as u32 / rows, values }
}

/// By its definition over features, with matrices kept.
fn cka_by_features(a: &Activation, b: &Activation) -> f64 {
    let column = |x: &Activation, c: u32| -> Vec<f64> {
        let own: Vec<f64> = (0..x.rows).map(|r| x.values[(r * x.cols + c) as usize] as f64).collect();
        let mean = own.iter().sum::<f64>() / own.len() as f64;
        own.iter().map(|v| v - mean).collect()
    };
    let norm = |x: &Activation, y: &Activation| -> f64 {
        let pairs = (0..x.cols).flat_map(|i| (0..y.cols).map(move |j| (i, j)));
        pairs
            .map(|(i, j)| column(x, i).iter().zip(column(y, j)).map(|(a, b)| a * b).sum::<f64>().powi(2))
            .sum::<f64>()
            .sqrt()
    };
    norm(a, b).powi(2) / (norm(a, a) * norm(b, b))
}

#[test]
fn cka() {
    let mut table = Table::new("CKA");
    let mut row = |name: &str, got: f64, want: std::ops::RangeInclusive<f64>| {
        table.row(name, if want.contains(&got) { Ok(()) } else { Err(format!("{got}, expected {want:?}")) });
    };
    let near = |want: f64| want - 1e-6..=want + 1e-6;
    // by hand: centred, a^T b = [0, 1], a^T a = 2, b^T b = [[2, -1], [-1, 2]] / 3
    let a = activation(3, vec![1.0, 2.0, 3.0]);
    let b = activation(3, vec![1.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    row("by hand", linear_cka(&a, &b).unwrap(), near(3.0 / (2.0 * 10f64.sqrt())));

    let mut random = Random::new(11);
    let (rows, cols) = (300, 12u32);
    let mut noise = |cols: u32| activation(rows, random.normals((rows * cols) as usize, 1.0));
    let (x, other, wide) = (noise(cols), noise(cols), noise(20));
    row("with itself", linear_cka(&x, &x).unwrap(), near(1.0));
    row("of independent noise", linear_cka(&x, &other).unwrap(), 0.0..=0.1);
    row("by features", linear_cka(&x, &wide).unwrap(), near(cka_by_features(&x, &wide)));
    // turned in every plane, mirrored, scaled and moved
    let mut turned = x.clone();
    for row in turned.values.chunks_mut(cols as usize) {
        for i in 0..row.len() {
            for j in 0..i {
                let (sin, cos) = (0.3 + (i * 7 + j) as f32).sin_cos();
                (row[i], row[j]) = (cos * row[i] - sin * row[j], sin * row[i] + cos * row[j]);
            }
        }
        row[3] = -row[3];
        row.iter_mut().for_each(|v| *v = 5.0 * *v + 2.0);
    }
    row("turned, scaled and moved", linear_cka(&x, &turned).unwrap(), near(1.0));
    let half = activation(rows, x.values.iter().zip(&other.values).map(|(a, b)| a + b).collect());
    let (between, symmetric) = (linear_cka(&x, &half).unwrap(), linear_cka(&half, &x).unwrap());
    row("half noise", between, 0.2..=0.8);
    row("either way round", symmetric, near(between));

    // a run with itself, in two ways through the model
    let model = load(gpu(), &TinyModel::new(Architecture::Llama, Format::F32, 47).gguf());
    let ids = Random::new(12).ids(30, VOCAB);
    let [prefill, decode] =
        [Mode::Prefill, Mode::Decode].map(|mode| run_tapped(&model, &exact(), mode, &ids, &["blk.*"]).0);
    for (one, other) in prefill.iter().zip(&decode) {
        row(&one.name, linear_cka(&one.activation, &one.activation).unwrap(), near(1.0));
        row(&format!("{} decoded", one.name), linear_cka(&one.activation, &other.activation).unwrap(), near(1.0));
    }

    for (name, a, b, words) in [
        ("rows", activation(3, vec![1.0; 6]), activation(2, vec![1.0; 6]), "3 and 2"),
        ("one row", activation(1, vec![1.0, 2.0]), activation(1, vec![1.0, 2.0]), "two rows"),
        ("constant", activation(3, vec![1.0; 6]), activation(3, vec![1.0, 2.0, 3.0]), "vary"),
        ("NaN", activation(3, vec![1.0, f32::NAN, 3.0]), activation(3, vec![1.0, 2.0, 3.0]), "finite"),
    ] {
        let error = linear_cka(&a, &b).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }) && error.to_string().contains(words), "{name}: {error}");
    }
    table.finish();
}
