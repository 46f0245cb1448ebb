//! Training on the GPU: whole runs against an independent autodiff, whole models' gradients against the reference.

mod common;

use common::gpu::*;
use common::tiny::TinyModel;
use common::{Random, Table, close, ids, json, numbers};
use peregrine::formats::Format;
use peregrine::gguf::Gguf;
use peregrine::model::Architecture;
use peregrine::reference::ReferenceModel;
use peregrine::train::{
    AdamW, Decline, IGNORED, LoraOptions, Of, Optimizer, Schedule, Sequence, TrainOptions, Trainer,
};
use peregrine::{Gpu, Model, SessionOptions, block_on};
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
        seed: 7,
    }
}

/// Runs of 50 steps that JAX made in f64 (tests/data/make_training.py): every loss within 1e-3.
#[test]
fn runs_follow_jax() {
    let runs = json("training/curves.json").expect("tests/data is part of the repository");
    let mut table = Table::new("runs");
    for (name, recompute) in [("full", false), ("scratch", true), ("lora", false), ("lora", true), ("full", true)] {
        let run = &runs[name];
        let path = common::data(&format!("training/{}", run["model"].as_str().unwrap())).expect("the run's model");
        let gguf = Gguf::open(&path).unwrap();
        let batches: Vec<Vec<Sequence>> = run["batches"]
            .as_array()
            .unwrap()
            .iter()
            .map(|b| b.as_array().unwrap().iter().map(sequence).collect())
            .collect();
        let options = options(&run["settings"], batches.len(), recompute);
        let mut trainer = match name {
            "lora" => {
                let model = block_on(Model::load(gpu(), &gguf, |_, _| ())).unwrap();
                let (rank, alpha) = (number(&run["settings"]["rank"]), number(&run["settings"]["alpha"]));
                let lora = LoraOptions { rank: rank as u32, alpha: alpha as f32, ..LoraOptions::default() };
                let trainer = Trainer::lora(&model, &lora, options).unwrap();
                for (matrix, a) in run["a"].as_object().unwrap() {
                    let name = format!("{matrix}.weight.lora_a");
                    let parameters = trainer.parameters();
                    let parameter = parameters.list().iter().find(|p| p.name == name).expect("an adapter");
                    parameters.write(gpu(), parameter, Of::Weights, &numbers(a)).unwrap();
                }
                trainer
            }
            _ => {
                let model = Model::load_masters(gpu(), &gguf, |_, _| ()).unwrap();
                Trainer::full(&model, |_| true, options).unwrap()
            }
        };
        for (step, (batch, want)) in batches.iter().zip(run["losses"].as_array().unwrap()).enumerate() {
            let (got, want) = (block_on(trainer.step(std::slice::from_ref(batch))).unwrap(), number(want));
            let outcome = match (got.loss - want).abs() <= 1e-3 * want && got.applied {
                true => Ok(()),
                false => Err(format!("loss {got:?}, JAX has {want}")),
            };
            table.row(&format!("{name}, recompute {recompute}, step {step}"), outcome);
        }
    }
    table.finish();
}
