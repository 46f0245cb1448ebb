//! Training on the GPU: whole runs against an independent autodiff, whole models' gradients against the reference.

mod common;

use common::gpu::*;
use common::tiny::{TinyModel, vector};
use common::{Random, Table, close, ids, json, numbers};
use peregrine::formats::Format;
use peregrine::gguf::Gguf;
use peregrine::model::{Adapters, Architecture};
use peregrine::reference::ReferenceModel;
use peregrine::train::{
    AdamW, Compute, Decline, IGNORED, LoraOptions, NewModel, Of, Optimizer, Schedule, Sequence, TrainOptions, Trainer,
};
use peregrine::{Gpu, Matrix, Model, Profile, SessionOptions, block_on};
use serde_json::Value;

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

fn sequence(value: &Value) -> Sequence {
    let label = |label: &Value| label.as_u64().map_or(IGNORED, |label| label as u32);
    Sequence { ids: ids(&value[0]), labels: value[1].as_array().expect("labels").iter().map(label).collect() }
}

fn options(settings: &Value, steps: usize, recompute: bool) -> TrainOptions {
    let setting = |name: &str| number(&settings[name]);
    let adamw =
        AdamW { beta1: setting("beta1"), beta2: setting("beta2"), eps: setting("eps"), decay: setting("decay") };
    TrainOptions {
        context: 16,
        tokens: 32,
        optimizer: Optimizer::AdamW(adamw),
        schedule: Schedule {
            rate: setting("lr"),
            warm_up: settings["warm_up"].as_u64().expect("steps"),
            steps: steps as u64,
            decline: Decline::Cosine,
            least: 0.1,
        },
        clip: Some(setting("clip")),
        recompute,
        compute: Compute::F32,
        seed: 7,
    }
}

/// Runs of 50 steps that JAX made in f64 (tests/data/make_training.py): every loss within 1e-3, with halves within 1e-2.
#[test]
fn runs_follow_jax() {
    let runs = json("training/curves.json").expect("tests/data is part of the repository");
    let mut table = Table::new("runs");
    let plain = Profile { lanes: false, eights: false, int8: false, ..gpu().profile() };
    let halves = gpu().with_profile(Profile { matrix: Some(Matrix::EmulatedHalves), ..plain });
    let rows = [
        ("full", false, gpu(), 1e-3),
        ("scratch", true, gpu(), 1e-3),
        ("lora", false, gpu(), 1e-3),
        ("lora", true, gpu(), 1e-3),
        ("full", true, gpu(), 1e-3),
        ("full", false, &halves, 1e-2),
        ("lora", true, &halves, 1e-2),
    ];
    for (name, recompute, gpu, near) in rows {
        let run = &runs[name];
        let path = common::data(&format!("training/{}", run["model"].as_str().unwrap())).expect("the run's model");
        let gguf = Gguf::open(&path).unwrap();
        let batches: Vec<Vec<Sequence>> = run["batches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| b.as_array().unwrap().iter().map(sequence).collect())
            .collect();
        let compute = if near > 1e-3 { Compute::F16 } else { Compute::F32 };
        let options = TrainOptions { compute, ..options(&run["settings"], batches.len(), recompute) };
        let mut trainer = match name {
            "lora" => {
                let model = block_on(Model::load(gpu, &gguf, |_, _| ())).unwrap();
                let (rank, alpha) = (number(&run["settings"]["rank"]), number(&run["settings"]["alpha"]));
                let lora = LoraOptions { rank: rank as u32, alpha: alpha as f32, ..LoraOptions::default() };
                let trainer = Trainer::lora(&model, &lora, options).unwrap();
                for (matrix, a) in run["a"].as_object().unwrap() {
                    let name = format!("{matrix}.weight.lora_a");
                    let parameters = trainer.parameters();
                    let parameter = parameters.list().iter().find(|p| p.name == name).expect("an adapter");
                    parameters.write(gpu, parameter, Of::Weights, &numbers(a)).unwrap();
                }
                trainer
            }
            _ => {
                let model = block_on(Model::load_masters(gpu, &gguf, |_, _| ())).unwrap();
                Trainer::full(&model, |_| true, options).unwrap()
            }
        };
        let on_matrices = trainer.plan().steps.iter().filter(|step| step.kernel.name == "matmul_matrix").count();
        assert_eq!(on_matrices > 0, compute == Compute::F16, "{name}: {on_matrices} steps on small matrices");
        for (step, (batch, want)) in batches.iter().zip(run["losses"].as_array().unwrap()).enumerate() {
            let (got, want) = (block_on(trainer.step(std::slice::from_ref(batch))).unwrap(), number(want));
            let outcome = match (got.loss - want).abs() <= near * want && got.applied {
                true => Ok(()),
                false => Err(format!("loss {got:?}, JAX has {want}")),
            };
            table.row(&format!("{name}, recompute {recompute}, {compute:?}, step {step}"), outcome);
        }
    }
    table.finish();
}

/// The recipe for the built-in model's successor: its architecture, first weights and settings, against JAX.
#[test]
fn the_recipe_for_tales_follows_jax() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/recipes/tales.toml");
    let recipe: toml::Table = std::fs::read_to_string(path).unwrap().parse().expect("a recipe");
    let run = json("training/tales.json").expect("tests/data is part of the repository");
    let (set, shape) = (&recipe["run"], &recipe["scratch"]);
    let count = |name: &str| shape[name].as_integer().expect("a number") as u32;
    for (ours, theirs) in [
        ("lr", "lr"),
        ("warmup", "warm_up"),
        ("steps", "steps"),
        ("beta1", "beta1"),
        ("beta2", "beta2"),
        ("decay", "decay"),
    ] {
        let ours = set[ours].as_float().or(set[ours].as_integer().map(|n| n as f64));
        assert_eq!(ours, run["settings"][theirs].as_f64(), "{theirs} of the recipe and of JAX's run");
    }
    let new = NewModel {
        architecture: Architecture::Llama,
        name: shape["name"].as_str().unwrap().into(),
        blocks: count("blocks"),
        embedding: count("embedding"),
        heads: count("heads"),
        kv_heads: count("kv-heads"),
        head_size: count("head-size"),
        feed_forward: count("feed-forward"),
        context: set["ctx"].as_integer().unwrap() as u32,
        rope_base: shape["rope-base"].as_float().unwrap() as f32,
        rms_eps: 1e-5,
        tied: true,
    };
    let gguf = new.gguf(&peregrine::builtin::tales().unwrap(), set["seed"].as_integer().unwrap() as u64).unwrap();
    let steps = number(&run["settings"]["steps"]) as usize;
    let options = TrainOptions { context: 64, tokens: 128, ..options(&run["settings"], steps, false) };
    let mut trainer = Trainer::full(&masters(gpu(), &gguf), |_| true, options).unwrap();
    let mut table = Table::new("the recipe for tales");
    let losses = run["losses"].as_array().unwrap();
    for (step, (batch, want)) in run["batches"].as_array().unwrap().iter().zip(losses).enumerate() {
        let batch: Vec<Sequence> = batch.as_array().unwrap().iter().map(sequence).collect();
        let got = block_on(trainer.step(&[batch])).unwrap();
        table.row(
            &format!("step {step}"),
            close("loss", &[got.loss as f32], &[number(want) as f32], 0.0, 1e-3).map(drop),
        );
    }
    table.finish();
}

fn learning(context: u32, tokens: u32, rate: f64) -> TrainOptions {
    let schedule = Schedule { rate, ..Schedule::default() };
    TrainOptions { context, tokens, schedule, seed: 5, ..TrainOptions::default() }
}

fn masters(gpu: &Gpu, gguf: &Gguf) -> Model {
    block_on(Model::load_masters(gpu, gguf, |_, _| ())).unwrap()
}

/// Ragged sequences, some labels ignored.
fn ragged(vocab: u32, seed: u64) -> Vec<Sequence> {
    let mut random = Random::new(seed);
    let sequence = |t: usize| {
        let ids = random.ids(t, vocab);
        let mut labels = random.ids(t, vocab);
        labels[t / 2] = IGNORED;
        Sequence { ids, labels }
    };
    [6, 1, 70, 9].map(sequence).to_vec().into_iter().filter(|sequence| sequence.counted() > 0).collect()
}

fn check_gradients(table: &mut Table, row: &str, gpu: &Gpu, gguf: &Gguf, vocab: u32) {
    let batch = ragged(vocab, 11);
    let mut reference = ReferenceModel::<f64>::from_gguf(gguf).unwrap();
    let want = reference.gradients(&batch).unwrap();
    let trainer = Trainer::full(&masters(gpu, gguf), |_| true, learning(80, 96, 0.0)).unwrap();
    let (loss, _) = block_on(trainer.gradients(std::slice::from_ref(&batch))).unwrap();
    let want_loss = reference.loss(&batch).unwrap() as f32;
    table.row(&format!("{row}: loss"), close("loss", &[loss as f32], &[want_loss], 0.0, 1e-5).map(drop));
    assert_eq!(trainer.parameters().list().len(), want.len(), "{row}: every tensor learns");
    for parameter in trainer.parameters().list() {
        let got = block_on(trainer.parameters().read(gpu, parameter, Of::Gradient)).unwrap();
        let want: Vec<f32> = want[&parameter.name].iter().map(|&g| g as f32).collect();
        let most = want.iter().fold(0.0f32, |most, g| most.max(g.abs()));
        assert!(most > 0.0, "{row}: {} has a gradient", parameter.name);
        let outcome = close("gradient", &got, &want, 2e-4 * most, 0.0);
        table.row(&format!("{row}: {}", parameter.name), outcome.map(drop));
    }
}

/// Every tensor's gradient against the reference's, which tests/backward.rs holds against differences in f64.
#[test]
fn gradients_of_whole_models() {
    let mut table = Table::new("gradients");
    let mut models = Vec::new();
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        for tied in [true, false] {
            models.push(TinyModel {
                tied,
                other_bias: architecture == Architecture::Qwen2 && tied,
                rope_freqs: (architecture == Architecture::Llama && tied).then(|| vec![1.0, 2.0, 4.0, 1.0, 1.5, 3.0]),
                ..TinyModel::new(architecture, Format::F32, 3)
            });
        }
    }
    models.push(TinyModel::of_a_large_vocabulary(3));
    for (profile, gpu) in profiles() {
        for tiny in &models {
            // weights in several parts, for the large vocabulary
            let gpu = if tiny.vocab > 65_536 { gpu.with_max_binding(5 << 20) } else { gpu.clone() };
            let row = format!("{} tied {}, V {}, {profile}", tiny.architecture.name(), tiny.tied, tiny.vocab);
            check_gradients(&mut table, &row, &gpu, &tiny.gguf(), tiny.vocab);
        }
    }
    table.finish();
}

/// Files may lack a bias beside others, or have a head norm in one block alone.
#[test]
fn gradients_of_uneven_models() {
    let mut table = Table::new("gradients of uneven models");
    let qwen2 = TinyModel::new(Architecture::Qwen2, Format::F32, 5);
    let mut tensors = qwen2.tensors();
    tensors.retain(|tensor| tensor.name != "blk.0.attn_k.bias");
    check_gradients(&mut table, "a bias missing", gpu(), &qwen2.gguf_of(&tensors), 203);
    let llama = TinyModel::new(Architecture::Llama, Format::F32, 6);
    for (norms, block) in [(&["attn_q_norm"][..], 0), (&["attn_k_norm"], 0), (&["attn_q_norm", "attn_k_norm"], 1)] {
        let mut tensors = llama.tensors();
        for norm in norms {
            let gains = Random::new(7).normals(llama.head_size as usize, 1.0);
            tensors.push(vector(&format!("blk.{block}.{norm}.weight"), &gains));
        }
        check_gradients(&mut table, &format!("{norms:?} in block {block}"), gpu(), &llama.gguf_of(&tensors), 203);
    }
    table.finish();
}

/// Gradients of micro-batches add up to that of the whole; recomputing changes nothing at all.
#[test]
fn accumulated_and_recomputed_gradients_are_the_same() {
    let gguf = TinyModel::new(Architecture::Qwen3, Format::F32, 9).gguf();
    let batch = ragged(203, 4);
    let gradients = |options: TrainOptions, batches: &[Vec<Sequence>]| {
        let trainer = Trainer::full(&masters(gpu(), &gguf), |_| true, options).unwrap();
        block_on(trainer.gradients(batches)).unwrap();
        let parameters = trainer.parameters();
        let read = |parameter| block_on(parameters.read(gpu(), parameter, Of::Gradient)).unwrap();
        parameters.list().iter().flat_map(read).collect::<Vec<f32>>()
    };
    let options = learning(80, 96, 0.0);
    let whole = gradients(options.clone(), std::slice::from_ref(&batch));
    assert_eq!(whole, gradients(options.clone(), std::slice::from_ref(&batch)), "the same sums in every run");
    let recomputed = gradients(TrainOptions { recompute: true, ..options.clone() }, std::slice::from_ref(&batch));
    assert_eq!(whole, recomputed, "recomputed");
    let micro: Vec<Vec<Sequence>> = batch.into_iter().map(|sequence| vec![sequence]).collect();
    let accumulated = gradients(options, &micro);
    close("accumulated", &accumulated, &whole, 1e-6, 1e-3).unwrap();
}

/// One batch of several lengths against each sequence alone, and against a session; changing one changes no other.
#[test]
fn sequences_do_not_see_one_another() {
    let mut table = Table::new("sequences");
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        let gguf = TinyModel::new(architecture, Format::Q8_0, 21).gguf();
        let model = block_on(Model::load(gpu(), &gguf, |_, _| ())).unwrap();
        let mode = model.sequences(64, 128).unwrap();
        let run = |sequences: &[&[u32]], tokens: Option<&[u32]>| {
            let mut rows: Vec<Vec<f32>> = Vec::new();
            block_on(mode.run(sequences, tokens, |_, logits| rows.push(logits.to_vec()))).unwrap();
            rows
        };
        let mut random = Random::new(3);
        let mut all = [17, 1, 40, 5].map(|t| random.ids(t, 203));
        let together = |all: &[Vec<u32>; 4]| run(&all.each_ref().map(Vec::as_slice), None);
        let before = together(&all);
        let mut first = 0;
        for (i, sequence) in all.iter().enumerate() {
            let own = run(&[sequence], None);
            let outcome =
                if before[first..first + own.len()] == own { Ok(()) } else { Err("not the same".to_string()) };
            table.row(&format!("{}: sequence {i} alone", architecture.name()), outcome);
            let options = SessionOptions { context: Some(64), exact: true, ..Default::default() };
            let mut session = model.session(&options).unwrap();
            let mut at = 0;
            block_on(session.append_all(sequence, |_, logits| {
                let outcome = close("logits", &own[at], logits, 2e-4, 1e-4);
                table
                    .row(&format!("{}: sequence {i} in a session, token {at}", architecture.name()), outcome.map(drop));
                at += 1;
            }))
            .unwrap();
            first += own.len();
        }
        let chosen = [60, 0, 18];
        let some = run(&all.each_ref().map(Vec::as_slice), Some(&chosen));
        assert_eq!(some, chosen.map(|token| before[token as usize].clone()), "chosen tokens");
        all[2][7] ^= 1;
        let after = together(&all);
        assert!(after[..18] == before[..18] && after[58..] == before[58..], "other sequences stay");
        assert!(after[18..25] == before[18..25], "earlier tokens stay");
        assert!(after[25] != before[25], "the changed token and later ones do not");
    }
    table.finish();
}

#[test]
fn one_sequence_is_learned_by_heart() {
    let gguf = TinyModel::new(Architecture::Qwen2, Format::Q8_0, 31).gguf();
    let model = masters(gpu(), &gguf);
    let mut trainer = Trainer::full(&model, |_| true, learning(24, 24, 3e-3)).unwrap();
    let sequence = Sequence::next_tokens(&Random::new(8).ids(20, 203));
    let mut last = f64::MAX;
    for _ in 0..120 {
        last = block_on(trainer.step(&[vec![sequence.clone()]])).unwrap().loss;
    }
    assert!(last < 1e-3, "the loss after 120 steps is {last}");
    // and the model itself, in a session, knows it now
    let options = SessionOptions { context: Some(64), exact: true, ..Default::default() };
    let mut session = model.session(&options).unwrap();
    block_on(session.append(&sequence.ids[..1])).unwrap();
    for (i, &want) in sequence.labels.iter().enumerate() {
        let id = block_on(session.greedy()).unwrap();
        assert_eq!(id, want, "token {i}");
        block_on(session.append(&[id])).unwrap();
    }
}

/// Adapters on quantized bases: nothing changes at first, then only the adapters do.
#[test]
fn adapters_leave_the_base_alone() {
    let mut table = Table::new("adapters");
    let batch = vec![ragged(203, 6)];
    for format in Format::ALL {
        let gguf = TinyModel::new(Architecture::Llama, format, 41).gguf();
        let model = block_on(Model::load(gpu(), &gguf, |_, _| ())).unwrap();
        let base = || -> Vec<Vec<u8>> {
            let blocks = model.weights().blocks.iter();
            let weights = blocks.flat_map(|block| [&block.attn_qkv.weight, &block.ffn_down.weight]);
            let parts = weights.flat_map(|weight| &weight.parts);
            parts.map(|part| block_on(gpu().read(&part.quants, 0, part.quants.size())).unwrap()).collect()
        };
        let (bytes, plain) = (base(), Trainer::lora(&model, &LoraOptions::default(), learning(80, 96, 1e-2)));
        let lora = LoraOptions { targets: peregrine::model::Target::ALL.to_vec(), rank: 5, ..LoraOptions::default() };
        let mut trainer = Trainer::lora(&model, &lora, learning(80, 96, 1e-2)).unwrap();
        let logits = |model: &Model| {
            let ids: Vec<&[u32]> = batch[0].iter().map(|sequence| sequence.ids.as_slice()).collect();
            let mut all = Vec::new();
            let mode = model.sequences(80, 96).unwrap();
            block_on(mode.run(&ids, None, |_, row| all.extend_from_slice(row))).unwrap();
            all
        };
        let before = logits(&model);
        let outcome = match logits(trainer.model()) == before && logits(plain.unwrap().model()) == before {
            true => Ok(()),
            false => Err("other logits than the base's".to_string()),
        };
        table.row(&format!("{}: at first", format.name()), outcome);
        let losses: Vec<f64> = (0..12).map(|_| block_on(trainer.step(&batch)).unwrap().loss).collect();
        let outcome = match losses[11] < losses[0] * 0.9 && base() == bytes && logits(&model) == before {
            true => Ok(()),
            false => Err(format!("losses {} to {}", losses[0], losses[11])),
        };
        table.row(&format!("{}: after 12 steps", format.name()), outcome);
        let exact = SessionOptions { context: Some(80), exact: true, ..Default::default() };
        let mut session = trainer.model().session(&exact).unwrap();
        let ids = &batch[0][0].ids;
        let last = (ids.len() - 1) * 203;
        let learned = logits(trainer.model());
        block_on(session.append(ids)).unwrap();
        let got = block_on(session.logits()).unwrap();
        let outcome = close("logits", &got, &learned[last..][..203], 1e-3, 1e-3);
        table.row(&format!("{}: in a prefill", format.name()), outcome.map(drop));
        session.truncate(0);
        ids.iter().for_each(|&id| block_on(session.append(&[id])).unwrap());
        let got = block_on(session.logits()).unwrap();
        let outcome = close("logits", &got, &learned[last..][..203], 1e-3, 1e-3);
        table.row(&format!("{}: token by token", format.name()), outcome.map(drop));
    }
    table.finish();
}

#[test]
fn dropout_is_the_same_in_every_run() {
    let gguf = TinyModel::new(Architecture::Llama, Format::Q8_0, 51).gguf();
    let model = block_on(Model::load(gpu(), &gguf, |_, _| ())).unwrap();
    let losses = |seed: u64, dropout: f32, recompute: bool| {
        let lora = LoraOptions { dropout, ..LoraOptions::default() };
        let options = TrainOptions { seed, recompute, ..learning(80, 96, 1e-2) };
        let mut trainer = Trainer::lora(&model, &lora, options).unwrap();
        let batch = [ragged(203, 6)];
        (0..4).map(|_| block_on(trainer.step(&batch)).unwrap().loss).collect::<Vec<f64>>()
    };
    assert_eq!(losses(1, 0.3, false), losses(1, 0.3, true));
    assert_ne!(losses(1, 0.3, false), losses(1, 0.0, false));
    // nothing is dropped where nothing learns
    let loss = |dropout: f32| {
        let lora = LoraOptions { dropout, ..LoraOptions::default() };
        let mut trainer = Trainer::lora(&model, &lora, learning(80, 96, 1e-2)).unwrap();
        let parameters = trainer.parameters();
        for parameter in parameters.list() {
            let count = parameter.shape.iter().product::<u64>() as usize;
            parameters.write(gpu(), parameter, Of::Weights, &Random::new(count as u64).normals(count, 0.1)).unwrap();
        }
        let before = block_on(trainer.loss(&ragged(203, 6))).unwrap();
        let step = block_on(trainer.step(&[ragged(203, 6)])).unwrap();
        (before, step.loss)
    };
    let ((before, _), (dropped_before, dropped_step)) = (loss(0.0), loss(0.5));
    assert_eq!(before, dropped_before);
    assert_ne!(before, dropped_step);
}

#[test]
fn an_adapter_file_of_rank_0_is_refused() {
    let gguf = TinyModel::new(Architecture::Llama, Format::F32, 61).gguf();
    let model = block_on(Model::load(gpu(), &gguf, |_, _| ())).unwrap();
    let mut writer = peregrine::gguf::Writer::new();
    writer.set("general.type", "adapter").set("general.architecture", "llama").set("adapter.lora.alpha", 1.0f32);
    let kind = Format::F32.tensor_type();
    writer.tensor("blk.0.attn_q.weight.lora_a", &[60, 0], kind, &[]);
    writer.tensor("blk.0.attn_q.weight.lora_b", &[0, 72], kind, &[]);
    let file = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    let outcome = Adapters::from_gguf(gpu(), model.config(), model.weights(), &file);
    assert!(outcome.err().expect("an error").to_string().contains("rank of 1 or more"));
}

#[test]
fn bad_requests_change_nothing() {
    let gguf = TinyModel::new(Architecture::Llama, Format::F32, 61).gguf();
    let frozen = block_on(Model::load(gpu(), &gguf, |_, _| ())).unwrap();
    let options = || learning(8, 12, 1e-3);
    let told = |outcome: Result<Trainer, peregrine::Error>| outcome.err().expect("an error").to_string();
    assert!(told(Trainer::full(&frozen, |_| true, options())).contains("load_masters"));
    assert!(told(Trainer::full(&masters(gpu(), &gguf), |_| false, options())).contains("tensors to train"));
    let lora = |lora: LoraOptions| Trainer::lora(&frozen, &lora, options());
    assert!(told(lora(LoraOptions { rank: 0, ..LoraOptions::default() })).contains("rank"));
    assert!(told(lora(LoraOptions { targets: vec![], ..LoraOptions::default() })).contains("targets"));
    assert!(told(lora(LoraOptions { dropout: 1.0, ..LoraOptions::default() })).contains("dropout"));
    assert!(told(Trainer::lora(&frozen, &LoraOptions::default(), learning(8, 0, 1.0))).contains("tokens of a pass"));
    let mut trainer = lora(LoraOptions::default()).unwrap();
    let mut refused = |ids: &[u32], labels: &[u32]| {
        let batch = vec![Sequence { ids: ids.to_vec(), labels: labels.to_vec() }];
        block_on(trainer.step(&[batch])).expect_err("a bad batch").to_string()
    };
    assert!(refused(&[1, 2], &[1]).contains("one for each of 2 tokens"));
    assert!(refused(&[], &[]).contains("not ignored"));
    assert!(refused(&[203], &[1]).contains("below the vocabulary's 203"));
    assert!(refused(&[1], &[203]).contains("below the vocabulary's 203"));
    assert!(refused(&[1], &[IGNORED]).contains("not ignored"));
    assert!(refused(&[1; 9], &[1; 9]).contains("1 to 8"));
    assert!(block_on(trainer.step(&[])).expect_err("no batch").to_string().contains("one or more"));
    assert_eq!(trainer.steps(), 0);
}
