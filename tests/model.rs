//! Whole models on the GPU: against the independent reference's numbers, against the CPU reference in every format,
//! and against themselves (prefill, decode and all-positions passes give the same).

mod common;

use common::cases::{Engine, Loader, chain};
use common::gpu::{gpu, profiles};
use common::tiny::TinyModel;
use common::{Random, Table, assert_close, close};
use peregrine::compare::compare;
use peregrine::formats::Format;
use peregrine::gguf::{Array, Value};
use peregrine::model::Architecture;
use peregrine::reference::{ReferenceModel, ops};
use peregrine::{
    Error, GenerateOptions, Gguf, Gpu, KvFormat, Model, Profile, Sampler, Sampling, Session, SessionOptions, Stop,
    block_on,
};
use std::path::Path;

impl Engine for Session {
    fn append(&mut self, ids: &[u32]) -> Result<Vec<f32>, String> {
        block_on(Session::append(self, ids)).map_err(|e| chain(&e))?;
        let logits = block_on(self.logits()).map_err(|e| chain(&e))?;
        // the choice on the GPU is the choice from the logits that come back
        match block_on(self.greedy()) {
            Ok(id) if id == ops::argmax(&logits, logits.len())[0] => {}
            Ok(id) => {
                return Err(format!("the GPU chose {id}, the logits say {:?}", ops::argmax(&logits, logits.len())));
            }
            Err(e) => return Err(chain(&e)),
        }
        Ok(logits)
    }

    fn reset(&mut self) {
        self.truncate(0);
    }
}

fn open(gpu: &Gpu, gguf: &Gguf, options: &SessionOptions) -> Result<Session, Error> {
    block_on(Model::load(gpu, gguf, |_, _| {}))?.session(options)
}

fn exact() -> SessionOptions {
    SessionOptions { exact: true, context: Some(256), ..Default::default() }
}

/// f32 throughout: what the references are compared with.
fn load_exact(path: &Path) -> Result<Box<dyn Engine>, String> {
    let session = Gguf::open(path).and_then(|gguf| open(gpu(), &gguf, &exact()));
    Ok(Box::new(session.map_err(|e| chain(&e))?))
}

const EXACT: Loader = Loader { load: &load_exact, tolerance: 2e-3, margin: 0.02 };

#[test]
fn tiny_models_in_every_format() {
    EXACT.tiny_models();
}

#[test]
fn stories260k() {
    EXACT.stories260k();
}

#[test]
fn built_in_model() {
    EXACT.built_in_model();
}

#[test]
fn variants() {
    EXACT.variants();
}

#[test]
fn smollm2() {
    EXACT.smollm2(32);
}

/// With the defaults (f16 cache) greedy ids agree wherever the margin exceeds 0.3.
#[test]
fn smollm2_with_the_defaults() {
    let load = |path: &Path| -> Result<Box<dyn Engine>, String> {
        let options = SessionOptions { context: Some(256), ..Default::default() };
        let session = Gguf::open(path).and_then(|gguf| open(gpu(), &gguf, &options));
        Ok(Box::new(session.map_err(|e| chain(&e))?))
    };
    Loader { load: &load, tolerance: 0.1, margin: 0.3 }.smollm2(32);
}

/// Lighter caches and activations in bytes against the exact path: the divergence of what they make of the same tokens.
#[test]
fn lighter_paths_stay_close_on_smollm2() {
    let Some(path) = common::data("fetched/SmolLM2-135M-Instruct.Q4_1.gguf") else { return };
    let Some(reference) = common::json("smollm2_reference.json") else { return };
    let gguf = Gguf::open(&path).unwrap();
    let prompts: Vec<Vec<u32>> =
        reference["prompts"].as_array().unwrap().iter().map(|case| common::ids(&case["token_ids"])).collect();
    // logits of every position, each decoded by itself
    let decode = |gpu: &Gpu, options: SessionOptions| -> Vec<Vec<f32>> {
        let mut session = open(gpu, &gguf, &options).unwrap();
        let mut all = Vec::new();
        for ids in &prompts {
            session.truncate(0);
            for &id in ids.iter().take(24) {
                all.push(Engine::append(&mut session, &[id]).unwrap());
            }
        }
        all
    };
    let divergence = |p: &[f32], q: &[f32]| -> f64 {
        let log_softmax = |x: &[f32]| -> Vec<f64> {
            let most = x.iter().fold(f32::MIN, |most, v| most.max(*v)) as f64;
            let sum: f64 = x.iter().map(|v| (*v as f64 - most).exp()).sum();
            x.iter().map(|v| *v as f64 - most - sum.ln()).collect()
        };
        let (p, q) = (log_softmax(p), log_softmax(q));
        p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum()
    };
    let options = |kv, exact| SessionOptions { context: Some(256), kv, exact, chunk: None };
    let wanted = decode(gpu(), options(KvFormat::F32, true));
    let floats = Profile { int8: false, ..gpu().profile() };
    let bytes = Profile { lanes: true, eights: false, int8: true, ..floats };
    let mut table = Table::new("lighter paths");
    for (name, profile, kv, limit) in [
        ("f16 cache", floats, KvFormat::F16, 1e-5),
        ("q8_0 cache", floats, KvFormat::Q8_0, 2e-3),
        ("activations in bytes", bytes, KvFormat::F32, 1e-5),
        ("activations in bytes, q8_0 cache", bytes, KvFormat::Q8_0, 2e-3),
    ] {
        let got = decode(&gpu().with_profile(profile), options(kv, false));
        let mean = wanted.iter().zip(&got).map(|(p, q)| divergence(p, q)).sum::<f64>() / got.len() as f64;
        println!("{name}: mean KL divergence {mean:.2e} over {} positions", got.len());
        let outcome =
            if (0.0..limit).contains(&mean.abs()) { Ok(()) } else { Err(format!("{mean:.2e} of {limit:.0e}")) };
        table.row(name, outcome);
    }
    table.finish();
}

fn reference_logits(gguf: &Gguf, ids: &[u32]) -> Vec<f32> {
    ReferenceModel::<f32>::from_gguf(gguf).and_then(|mut model| model.append(ids)).unwrap()
}

/// Logits are close to 1 in size, so relative means relative to the largest of the row.
fn close_relative(name: &str, got: &[f32], want: &[f32], rel: f32) -> Result<(), String> {
    let largest = want.iter().fold(0.0f32, |most, v| most.max(v.abs()));
    close(name, got, want, rel * largest, 0.0).map(drop)
}

#[test]
fn every_architecture_in_every_format_equals_the_reference() {
    let mut table = Table::new("architectures x formats");
    for architecture in Architecture::ALL {
        for format in Format::ALL {
            let gguf = TinyModel::new(architecture, format, 11).gguf();
            let ids = Random::new(3).ids(9, 203);
            let want = reference_logits(&gguf, &ids);
            let run = |gpu: &Gpu| -> Result<(), String> {
                let mut session = open(gpu, &gguf, &exact()).map_err(|e| chain(&e))?;
                let mut got = Vec::new();
                block_on(session.append_all(&ids, |_, row| got.extend_from_slice(row))).map_err(|e| chain(&e))?;
                close_relative("logits", &got, &want, 1e-4)
            };
            table.row(&format!("{} {}", architecture.name(), format.name()), run(gpu()));
        }
    }
    table.finish();
}

#[test]
fn every_profile_gives_the_same() {
    let mut table = Table::new("profiles");
    let gguf = TinyModel::new(Architecture::Qwen3, Format::Q4_K, 5).gguf();
    let ids = Random::new(4).ids(37, 203);
    let want = reference_logits(&gguf, &ids);
    for (profile, gpu) in profiles() {
        let run = || -> Result<(), String> {
            let mut session = open(&gpu, &gguf, &exact()).map_err(|e| chain(&e))?;
            let got = Engine::append(&mut session, &ids)?;
            close_relative("logits", &got, &want[want.len() - 203..], 1e-4)?;
            // few tokens at a time, for which there are passes of their own
            session.truncate(0);
            for tokens in [2, 3, 5, 8, 9, 10] {
                let before = session.position() as usize;
                let got = Engine::append(&mut session, &ids[before..before + tokens])?;
                let want = &want[(before + tokens - 1) * 203..(before + tokens) * 203];
                close_relative(&format!("logits after {tokens} more"), &got, want, 1e-4)?;
            }
            Ok(())
        };
        table.row(&profile, run());
    }
    table.finish();
}

#[test]
fn prefill_decode_and_all_positions_agree() {
    let mut table = Table::new("ways through a prompt");
    for architecture in Architecture::ALL {
        let gguf = TinyModel::new(architecture, Format::F32, 21).gguf();
        let ids = Random::new(8).ids(23, 203);
        let want = reference_logits(&gguf, &ids);
        let model = block_on(Model::load(gpu(), &gguf, |_, _| {})).unwrap();
        let options = |chunk| SessionOptions { chunk: Some(chunk), ..exact() };

        // one token at a time, every position
        let mut session = model.session(&options(16)).unwrap();
        for (i, &id) in ids.iter().enumerate() {
            let got = Engine::append(&mut session, &[id]).unwrap();
            let name = format!("{} decode at {i}", architecture.name());
            table.row(&name, close_relative("logits", &got, &want[i * 203..(i + 1) * 203], 1e-4));
        }
        // chunks of every length, with and without a rest of one
        for chunk in [1, 2, 5, 11, 22, 23, 64] {
            let mut session = model.session(&options(chunk)).unwrap();
            let got = Engine::append(&mut session, &ids).unwrap();
            let name = format!("{} chunks of {chunk}", architecture.name());
            table.row(&name, close_relative("logits", &got, &want[22 * 203..], 1e-4));
        }
        // in two parts, and again after forgetting the second
        let mut session = model.session(&options(16)).unwrap();
        Engine::append(&mut session, &ids[..10]).unwrap();
        Engine::append(&mut session, &Random::new(9).ids(7, 203)).unwrap();
        session.truncate(10);
        let got = Engine::append(&mut session, &ids[10..]).unwrap();
        table.row(
            &format!("{} truncated", architecture.name()),
            close_relative("logits", &got, &want[22 * 203..], 1e-4),
        );
    }
    table.finish();
}

/// The same network, its Q and K rows in the order of either RoPE pairing, gives the same logits.
#[test]
fn both_rope_pairings_of_one_model() {
    let halves = TinyModel { qkv_bias: false, ..TinyModel::new(Architecture::Qwen2, Format::F32, 31) };
    let neighbours = TinyModel { architecture: Architecture::Llama, neighbours: true, ..halves.clone() };
    let ids = Random::new(1).ids(12, 203);
    let logits = |tiny: &TinyModel| Engine::append(&mut open(gpu(), &tiny.gguf(), &exact()).unwrap(), &ids).unwrap();
    assert_close("neighbours as halves", &logits(&neighbours), &logits(&halves), 1e-4, 1e-4);
}

#[test]
fn a_model_split_into_shards() {
    let gguf = TinyModel::new(Architecture::Llama, Format::Q8_0, 41).gguf();
    let ids = Random::new(2).ids(6, 203);
    // 203 rows of 96 weights take 20,706 bytes: the embedding becomes shards, all else stays whole
    let small = gpu().with_max_binding(16 << 10);
    let mut session = open(&small, &gguf, &SessionOptions { context: Some(16), chunk: Some(8), ..exact() }).unwrap();
    assert!(session.model().weights().token_embd.parts.len() > 1);
    let got = Engine::append(&mut session, &ids).unwrap();
    let want = reference_logits(&gguf, &ids);
    close_relative("logits", &got, &want[5 * 203..], 1e-4).unwrap();
}

#[test]
fn bad_requests_leave_the_session_as_it_was() {
    let gguf = TinyModel::new(Architecture::Llama, Format::F32, 51).gguf();
    let mut session = open(gpu(), &gguf, &SessionOptions { context: Some(8), ..exact() }).unwrap();
    let before = Engine::append(&mut session, &[1, 2, 3]).unwrap();
    assert!(matches!(block_on(session.append(&[])), Err(Error::Argument { .. })));
    assert!(matches!(block_on(session.append(&[203])), Err(Error::Argument { .. })));
    assert!(matches!(
        block_on(session.append(&[1; 6])),
        Err(Error::ContextFull { context: 8, position: 3, tokens: 6, .. })
    ));
    assert_eq!((session.position(), block_on(session.logits()).unwrap()), (3, before));
    block_on(session.append(&[1; 5])).unwrap(); // exactly full
    assert!(matches!(block_on(session.append(&[1])), Err(Error::ContextFull { position: 8, .. })));
    session.truncate(0);
    assert!(matches!(block_on(session.logits()), Err(Error::Argument { .. })));
}

#[test]
fn broken_weights_are_told_when_a_token_is_chosen() {
    let tiny = TinyModel::new(Architecture::Llama, Format::F32, 61);
    let mut tensors = tiny.tensors();
    let norm = tensors.iter_mut().find(|t| t.name == "output_norm.weight").unwrap();
    norm.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    let gguf = tiny.gguf_of(&tensors);
    let mut session = open(gpu(), &gguf, &exact()).unwrap();
    block_on(session.append(&[1, 2])).unwrap();
    assert!(matches!(block_on(session.greedy()), Err(Error::NotFinite { position: 1, .. })));
}

/// Tokens chosen on the CPU, each before the next pass: what a generation must give, too.
fn one_by_one(session: &mut Session, sampling: &Sampling, count: usize) -> Vec<u32> {
    let mut sampler = Sampler::new(sampling.clone()).unwrap();
    let mut ids = Vec::new();
    while ids.len() < count {
        let mut logits = block_on(session.logits()).unwrap();
        let id = sampler.pick(&mut logits, session.tokens()).unwrap();
        ids.push(id);
        if ids.len() < count {
            block_on(session.append(&[id])).unwrap();
        }
    }
    ids
}

fn up_to(max_tokens: usize, sampling: &Sampling) -> GenerateOptions {
    GenerateOptions { sampling: sampling.clone(), max_tokens: Some(max_tokens as u32), end_ids: Vec::new() }
}

#[test]
fn a_generation_gives_the_tokens_of_a_loop_on_the_cpu() {
    let usual = |seed| Sampling { seed: Some(seed), ..Sampling::default() };
    let hot = |seed| Sampling { temperature: 20.0, top_k: 256, top_p: 1.0, min_p: 0.0, ..usual(seed) };
    let penalties = |base| Sampling {
        repeat_penalty: 1.4,
        repeat_last_n: 12,
        frequency_penalty: 0.3,
        presence_penalty: 0.2,
        barred: vec![3, 77],
        ..base
    };
    let mut samplings = vec![
        ("greedy".to_string(), Sampling::greedy()),
        ("greedy with penalties".into(), penalties(Sampling::greedy())),
        ("no top-k: on the CPU".into(), Sampling { top_k: 0, ..usual(1) }),
    ];
    for seed in 1..5 {
        samplings.extend([
            (format!("usual, seed {seed}"), usual(seed)),
            (format!("hot, seed {seed}"), hot(seed)),
            (format!("hot with penalties, seed {seed}"), penalties(hot(seed))),
        ]);
    }
    let mut models: Vec<(&str, Gguf, usize)> = vec![
        ("llama F32", TinyModel::new(Architecture::Llama, Format::F32, 91).gguf(), 40),
        ("qwen2 Q8_0", TinyModel::new(Architecture::Qwen2, Format::Q8_0, 92).gguf(), 40),
    ];
    if let Some(path) = common::data("fetched/SmolLM2-135M-Instruct.Q4_1.gguf") {
        models.push(("smollm2", Gguf::open(path).unwrap(), 6));
    }
    let mut table = Table::new("generations");
    for (model, gguf, count) in models {
        let options = SessionOptions { context: Some(64), ..Default::default() };
        let mut session = open(gpu(), &gguf, &options).unwrap();
        for prompt in [&[5, 9, 77, 5, 102][..], &[1]] {
            for (name, sampling) in &samplings {
                session.truncate(0);
                block_on(session.append(prompt)).unwrap();
                let want = one_by_one(&mut session, sampling, count);
                session.truncate(0);
                block_on(session.append(prompt)).unwrap();
                let got: Vec<u32> =
                    session.generate(up_to(count, sampling)).unwrap().collect::<Result<_, _>>().unwrap();
                let same = got == want && session.tokens() == [prompt, &want[..count - 1]].concat();
                let told = || format!("got {got:?}, expected {want:?}");
                table.row(&format!("{model}, {name}, {prompt:?}"), if same { Ok(()) } else { Err(told()) });
            }
        }
    }
    table.finish();
}

/// However an answer ends, the session holds the prompt and the tokens given (but for the last, unless an end token was
/// chosen after it), and goes on from there.
#[test]
fn a_session_goes_on_after_any_end_of_a_generation() {
    let gguf = TinyModel::new(Architecture::Llama, Format::F32, 93).gguf();
    let sampling = Sampling { temperature: 20.0, seed: Some(5), top_p: 1.0, min_p: 0.0, ..Sampling::default() };
    let (context, prompt) = (24, [7, 8, 9]);
    let new = || {
        let mut session = open(gpu(), &gguf, &SessionOptions { context: Some(context), ..Default::default() }).unwrap();
        block_on(session.append(&prompt)).unwrap();
        session
    };
    let answer = one_by_one(&mut new(), &sampling, context as usize - 2);
    let first = |id: u32| answer.iter().position(|&other| other == id).unwrap();
    let end = *answer.iter().find(|&&id| first(id) > 3).expect("an id that comes late");
    let mut table = Table::new("ends");
    let all = || GenerateOptions { sampling: sampling.clone(), max_tokens: None, end_ids: Vec::new() };
    for (name, options, pulled, given, stop) in [
        ("never pulled", all(), 0, 0, None),
        ("dropped after one", all(), 1, 1, None),
        ("dropped in the middle", all(), 5, 5, None),
        ("no tokens wanted", up_to(0, &sampling), 9, 0, Some(Stop::Length)),
        ("one token wanted", up_to(1, &sampling), 9, 1, Some(Stop::Length)),
        ("six tokens wanted", up_to(6, &sampling), 9, 6, Some(Stop::Length)),
        ("context full", all(), 99, answer.len(), Some(Stop::Context)),
        ("end id", GenerateOptions { end_ids: vec![end], ..all() }, 99, first(end), Some(Stop::End(end))),
        ("end id at once", GenerateOptions { end_ids: vec![answer[0]], ..all() }, 99, 0, Some(Stop::End(answer[0]))),
    ] {
        let run = || -> Result<(), String> {
            let mut session = new();
            let mut generation = session.generate(options).map_err(|e| chain(&e))?;
            let got: Vec<u32> = generation.by_ref().take(pulled).collect::<Result<_, _>>().map_err(|e| chain(&e))?;
            let stopped = generation.stop();
            if got != answer[..given] || stopped != stop {
                return Err(format!("got {got:?}, {stopped:?}; expected {:?}, {stop:?}", &answer[..given]));
            }
            let seen = if matches!(stop, Some(Stop::End(_))) { given } else { given.saturating_sub(1) };
            let held = [&prompt[..], &answer[..seen]].concat();
            if session.tokens() != held || session.position() as usize != held.len() {
                return Err(format!("the session holds {:?}, expected {held:?}", session.tokens()));
            }
            // a session that never ran ahead
            let mut other = new();
            for &id in &held[3..] {
                block_on(other.append(&[id])).unwrap();
            }
            let logits = |session: &Session| block_on(session.logits()).map_err(|e| chain(&e));
            close("logits", &logits(&session)?, &logits(&other)?, 0.0, 0.0)?;
            let again = |session: &mut Session| session.generate(up_to(1, &sampling)).unwrap().collect::<Vec<_>>();
            let (a, b) = (format!("{:?}", again(&mut session)), format!("{:?}", again(&mut other)));
            if a != b {
                return Err(format!("the next token is {a}, expected {b}"));
            }
            if session.position() < context {
                close("later", &Engine::append(&mut session, &[4])?, &Engine::append(&mut other, &[4])?, 0.0, 0.0)?;
            }
            let shared = session.reuse(&[7, 8, 1]).to_vec();
            if shared != [1] {
                return Err(format!("left to append: {shared:?}"));
            }
            Ok(())
        };
        table.row(name, run());
    }
    table.finish();
}

#[test]
fn a_generation_tells_of_broken_weights_and_of_barred_vocabularies() {
    let tiny = TinyModel::new(Architecture::Llama, Format::F32, 61);
    let sampling = |barred| Sampling { seed: Some(1), barred, ..Sampling::default() };
    let next = |gguf: &Gguf, barred: Vec<u32>| {
        let mut session = open(gpu(), gguf, &exact()).unwrap();
        block_on(session.append(&[1, 2])).unwrap();
        let mut generation = session.generate(up_to(5, &sampling(barred))).unwrap();
        // asked again, it says the same
        [generation.next(), generation.next()].map(|next| next.unwrap().unwrap_err())
    };
    let mut tensors = tiny.tensors();
    let norm = tensors.iter_mut().find(|t| t.name == "output_norm.weight").unwrap();
    norm.bytes[..4].copy_from_slice(&f32::NAN.to_le_bytes());
    for error in next(&tiny.gguf_of(&tensors), Vec::new()) {
        assert!(matches!(error, Error::NotFinite { position: 1, id: 0, .. }), "{error}");
    }
    for error in next(&tiny.gguf(), (0..203).collect()) {
        assert!(error.to_string().contains("203 barred tokens"), "{error}");
    }
    for error in next(&tiny.gguf(), vec![203]) {
        assert!(error.to_string().contains("a barred token: expected an id below 203, got 203"), "{error}");
    }
}

/// Every step of both plans is compared, and a damaged weight is found at its own step.
#[test]
fn compare_finds_the_first_step_that_differs() {
    let tiny = TinyModel::new(Architecture::Qwen2, Format::Q8_0, 71);
    let ids = Random::new(6).ids(7, 203);
    let damaged = {
        let mut tensors = tiny.tensors();
        let weight = tensors.iter_mut().find(|t| t.name == "blk.1.ffn_up.weight").unwrap();
        weight.bytes[2] ^= 0x40;
        tiny.gguf_of(&tensors)
    };
    for tokens in [&ids[..], &ids[..1]] {
        let mut session = open(gpu(), &tiny.gguf(), &exact()).unwrap();
        let steps = block_on(compare(&mut session, &tiny.gguf(), tokens)).unwrap();
        let plan = if tokens.len() == 1 { session.plan() } else { session.prefill_plan() };
        let unseen: Vec<_> = plan.steps.iter().filter(|s| !steps.iter().any(|seen| seen.label == s.label)).collect();
        assert!(
            unseen.is_empty(),
            "steps without a reference: {:?}",
            unseen.iter().map(|s| &s.label).collect::<Vec<_>>()
        );
        let wrong: Vec<_> = steps.iter().filter(|step| step.relative > 1e-4).collect();
        assert!(wrong.is_empty(), "{wrong:#?}");

        let mut session = open(gpu(), &damaged, &exact()).unwrap();
        let steps = block_on(compare(&mut session, &tiny.gguf(), tokens)).unwrap();
        let first = steps.iter().find(|step| step.relative > 1e-4).expect("the damage shows");
        assert_eq!((first.label.as_str(), first.column), ("blk.1.swiglu", 0));
    }
}

/// Every option of a model that changes its plan, against the CPU reference.
#[test]
fn options_of_models_equal_the_reference() {
    let llama = || TinyModel::new(Architecture::Llama, Format::F32, 81);
    let numbers = |list: &[u32]| Value::Array(Array::U32(list.to_vec()));
    let mut models = vec![
        ("untied", TinyModel { tied: false, ..llama() }.gguf()),
        ("biases everywhere", TinyModel { qkv_bias: true, other_bias: true, ..llama() }.gguf()),
        ("frequency factors", TinyModel { rope_freqs: Some(vec![1.0, 1.5, 2.0, 4.0, 8.0, 8.0]), ..llama() }.gguf()),
        ("a part of the head turns", llama().with("rope.dimension_count", Value::U32(8)).gguf()),
        (
            "linear scaling",
            llama().with("rope.scaling.type", "linear".into()).with("rope.scaling.factor", 4.0f32.into()).gguf(),
        ),
        ("one head for each kv head", TinyModel { kv_heads: 6, ..llama() }.gguf()),
        ("one kv head", TinyModel { kv_heads: 1, ..llama() }.gguf()),
        ("heads of 256", TinyModel { head_size: 256, heads: 2, kv_heads: 1, ..llama() }.gguf()),
    ];
    let yarn = llama().with("rope.scaling.type", "yarn".into()).with("rope.scaling.factor", 4.0f32.into());
    let yarn = yarn.with("rope.scaling.original_context_length", Value::U32(32));
    models.push(("yarn", yarn.clone().gguf()));
    models.push(("yarn with a factor of its own", yarn.with("rope.scaling.attn_factor", 0.8f32.into()).gguf()));
    // blocks of different widths
    let wide = llama()
        .with("attention.head_count", numbers(&[6, 4]))
        .with("attention.head_count_kv", numbers(&[2, 4]))
        .with("feed_forward_length", numbers(&[100, 52]));
    let narrow = TinyModel { heads: 4, kv_heads: 4, feed_forward: 52, ..wide.clone() };
    let mut tensors = wide.tensors();
    tensors.retain(|tensor| !tensor.name.starts_with("blk.1."));
    tensors.extend(narrow.tensors().into_iter().filter(|tensor| tensor.name.starts_with("blk.1.")));
    models.push(("blocks of different widths", wide.gguf_of(&tensors)));

    let mut table = Table::new("options");
    let ids = Random::new(12).ids(11, 203);
    for (name, gguf) in models {
        let run = || -> Result<(), String> {
            let mut session = open(gpu(), &gguf, &exact()).map_err(|e| chain(&e))?;
            let want = reference_logits(&gguf, &ids);
            let prefill = Engine::append(&mut session, &ids[..10])?;
            close_relative("prefill", &prefill, &want[9 * 203..10 * 203], 1e-4)?;
            let decode = Engine::append(&mut session, &ids[10..])?;
            close_relative("decode", &decode, &want[10 * 203..], 1e-4)
        };
        table.row(name, run());
    }
    table.finish();
}
