//! Training against an independent autodiff: tests/data/make_training.py ran the same steps in JAX, in f64.

mod common;

use common::{ids, json, numbers};
use peregrine::Gguf;
use peregrine::reference::ReferenceModel;
use peregrine::reference::backward::{matmul_dw, matmul_dx};
use peregrine::reference::ops;
use peregrine::reference::optimizer::{Moments, adamw, global_norm};
use peregrine::train::{AdamW, Decline, IGNORED, Schedule, Sequence};
use serde_json::Value;
use std::collections::BTreeMap;

/// A run of the file: its settings, the batch of every step, and the loss before it.
struct Run {
    model: ReferenceModel<f64>,
    tensors: Vec<String>,
    settings: Value,
    schedule: Schedule,
    batches: Vec<Vec<Sequence>>,
    losses: Vec<f64>,
    /// By matrix: the adapter's first A [rank, K].
    a: BTreeMap<String, Vec<f64>>,
}

fn run(name: &str) -> Run {
    let mut runs = json("training/curves.json").expect("tests/data is part of the repository");
    let run = runs[name].take();
    let path = common::data(&format!("training/{}", run["model"].as_str().unwrap())).expect("the model of the run");
    let gguf = Gguf::open(&path).expect("a valid model");
    let settings = run["settings"].clone();
    let batches: Vec<Vec<Sequence>> = list(&run["batches"], |batch| list(batch, sequence));
    let schedule = Schedule {
        rate: number(&settings["lr"]),
        warm_up: settings["warm_up"].as_u64().unwrap(),
        steps: batches.len() as u64,
        decline: Decline::Cosine,
        least: 0.1,
    };
    let a = run["a"].as_object().into_iter().flatten();
    Run {
        model: ReferenceModel::from_gguf(&gguf).expect("a valid model"),
        tensors: gguf.tensors().iter().map(|tensor| tensor.name.clone()).collect(),
        settings,
        schedule,
        batches,
        losses: list(&run["losses"], number),
        a: a.map(|(name, a)| (name.clone(), numbers(a).into_iter().map(f64::from).collect())).collect(),
    }
}

fn list<T>(value: &Value, each: impl Fn(&Value) -> T) -> Vec<T> {
    value.as_array().expect("an array").iter().map(each).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().expect("a number")
}

/// [ids, labels], -1 where a label is not counted.
fn sequence(value: &Value) -> Sequence {
    let label = |label: &Value| label.as_u64().map_or(IGNORED, |label| label as u32);
    Sequence { ids: ids(&value[0]), labels: list(&value[1], label) }
}

impl Run {
    fn adamw(&self, is_matrix: bool) -> AdamW {
        let setting = |name: &str| number(&self.settings[name]);
        let decay = if is_matrix { setting("decay") } else { 0.0 };
        AdamW { beta1: setting("beta1"), beta2: setting("beta2"), eps: setting("eps"), decay }
    }

    /// What the gradients are multiplied with.
    fn clip(&self, norm: f64) -> f64 {
        (number(&self.settings["clip"]) / norm).min(1.0)
    }

    fn check(&self, step: usize, loss: f64) {
        let want = self.losses[step];
        assert!((loss - want).abs() <= 1e-6 * want, "step {step}: loss {loss}, JAX has {want}");
    }
}

/// All weights of the model.
fn train_whole(name: &str) {
    let mut run = run(name);
    let mut moments: BTreeMap<String, Moments> = BTreeMap::new();
    assert!(run.losses.last() < run.losses.first(), "the run learned something");
    for step in 0..run.batches.len() {
        let loss = run.model.loss(&run.batches[step]).unwrap();
        run.check(step, loss);
        let gradients = run.model.gradients(&run.batches[step]).unwrap();
        assert_eq!(gradients.len(), run.tensors.len(), "every tensor has a gradient");
        let clip = run.clip(global_norm(gradients.values().map(Vec::as_slice)));
        for name in run.tensors.clone() {
            let gradient: Vec<f64> = gradients[&name].iter().map(|g| g * clip).collect();
            let settings = run.adamw(!name.contains("norm"));
            let moments = moments.entry(name.clone()).or_insert_with(|| Moments::new(gradient.len()));
            let w = run.model.weight_mut(&name).unwrap();
            adamw(w, &gradient, moments, &settings, run.schedule.at(step as u64), step as u64 + 1);
        }
    }
}

#[test]
fn full_follows_jax() {
    train_whole("full");
}

#[test]
fn scratch_follows_jax() {
    train_whole("scratch");
}

/// One matrix and what is added to it: W + alpha / rank B A.
struct Adapted {
    name: String,
    base: Vec<f64>,
    k: usize,
    a: Vec<f64>, // [rank, K]
    b: Vec<f64>, // [N, rank]
    moments: [Moments; 2],
}

#[test]
fn lora_follows_jax() {
    let mut run = run("lora");
    let rank = run.settings["rank"].as_u64().unwrap() as usize;
    let scale = number(&run.settings["alpha"]) / rank as f64;
    let mut adapted: Vec<Adapted> = std::mem::take(&mut run.a)
        .into_iter()
        .map(|(name, a)| {
            let name = format!("{name}.weight");
            let base = run.model.weight_mut(&name).unwrap().to_vec();
            let k = a.len() / rank;
            let b = vec![0.0; base.len() / k * rank];
            let moments = [Moments::new(a.len()), Moments::new(b.len())];
            Adapted { name, base, k, a, b, moments }
        })
        .collect();
    for step in 0..run.batches.len() {
        for w in &adapted {
            let n = w.base.len() / w.k;
            let product = matmul_dx(&w.b, &w.a, n, w.k, rank); // B A: [N, rank] [rank, K]
            let sum: Vec<f64> = w.base.iter().zip(&product).map(|(base, product)| base + scale * product).collect();
            run.model.weight_mut(&w.name).unwrap().copy_from_slice(&sum);
        }
        let loss = run.model.loss(&run.batches[step]).unwrap();
        run.check(step, loss);
        let gradients = run.model.gradients(&run.batches[step]).unwrap();
        let mut parts: Vec<[Vec<f64>; 2]> = Vec::new(); // of A and B
        for w in &adapted {
            let n = w.base.len() / w.k;
            let dw: Vec<f64> = gradients[&w.name].iter().map(|g| g * scale).collect(); // [N, K]
            let da = matmul_dw(&w.b, &dw, n, w.k, rank); // Bᵀ dW: [rank, K]
            let db = ops::matmul(&dw, &w.a, n, w.k, rank); // dW Aᵀ: [N, rank]
            parts.push([da, db]);
        }
        let clip = run.clip(global_norm(parts.iter().flatten().map(Vec::as_slice)));
        let (settings, rate) = (run.adamw(true), run.schedule.at(step as u64));
        for (w, parts) in adapted.iter_mut().zip(&parts) {
            let [da, db] = parts.each_ref().map(|g| g.iter().map(|g| g * clip).collect::<Vec<f64>>());
            adamw(&mut w.a, &da, &mut w.moments[0], &settings, rate, step as u64 + 1);
            adamw(&mut w.b, &db, &mut w.moments[1], &settings, rate, step as u64 + 1);
        }
    }
}

#[test]
fn schedules() {
    let schedule = |decline| Schedule { rate: 2.0, warm_up: 4, steps: 14, decline, least: 0.1 };
    let cosine = schedule(Decline::Cosine);
    assert_eq!([0, 1, 3, 4].map(|step| cosine.at(step)), [0.5, 1.0, 2.0, 2.0]);
    assert!((cosine.at(9) - 2.0 * 0.55).abs() < 1e-12, "halfway");
    assert!((cosine.at(14) - 0.2).abs() < 1e-12 && cosine.at(1000) == cosine.at(14), "at the end and after");
    let linear = schedule(Decline::Linear);
    assert!((linear.at(6) - 2.0 * (0.1 + 0.9 * 0.8)).abs() < 1e-12);
    assert_eq!([4, 14, 99].map(|step| schedule(Decline::Constant).at(step)), [2.0; 3]);
    let none = Schedule { rate: 1.0, warm_up: 0, steps: 0, decline: Decline::Cosine, least: 0.0 };
    assert_eq!((none.at(0), none.at(1)), (1.0, 0.0));
}
