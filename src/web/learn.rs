//! LoRA in the browser: an adapter is trained on a few examples and given to JavaScript as files, one of which turns it on.

use super::engine::{Engine, Loaded, not_loaded, session};
use super::error::{bad, thrown};
use crate::gguf::Gguf;
use crate::model::{Adapters, Target};
use crate::train::{Batches, DataOptions, Decline, LoraOptions, Schedule, TrainOptions, Trainer, read_data_from};
use js_sys::{Array, Function, Uint8Array};
use serde::Deserialize;
use std::path::Path;
use std::sync::Arc;
use wasm_bindgen::prelude::*;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct LearnOptions {
    rank: u32,
    alpha: f32,
    learning_rate: f64,
    steps: u64,
    /// Sequences of a step.
    batch: usize,
    /// Tokens of a sequence at most: what is longer is cut.
    context: u32,
    targets: Vec<String>,
    seed: u64,
}

impl Default for LearnOptions {
    fn default() -> LearnOptions {
        let targets = Target::ALL.map(|target| target.name().into()).to_vec();
        LearnOptions { rank: 8, alpha: 16.0, learning_rate: 1e-3, steps: 30, batch: 1, context: 256, targets, seed: 0 }
    }
}

#[wasm_bindgen]
impl Engine {
    /// Trains a new adapter on `examples`, JSONL as [`read_data`](crate::train::read_data) takes it. `step(step, steps, loss,
    /// rate, tokens)` is called after each step: false ends the training. Gives the adapter as files, [name, bytes, ..]: a GGUF
    /// file for [`Engine::set_adapter`] and llama.cpp, and the two of PEFT, in which `base` names the model.
    pub async fn learn(
        &mut self,
        examples: &str,
        options: &str,
        base: String,
        step: &Function,
    ) -> Result<Array, JsValue> {
        let options: LearnOptions =
            serde_json::from_str(options).map_err(|error| bad("options", "those of a training", error.to_string()))?;
        let mut targets = Vec::new();
        for name in &options.targets {
            let target = Target::from_name(name);
            targets.push(target.ok_or_else(|| bad("target", "q, k, v, o, gate, up or down", name.as_str()))?);
        }
        let loaded = self.loaded().map_err(thrown)?;
        let context = options.context.min(loaded.model.config().context_length);
        let data = DataOptions { context, pack: false, ..DataOptions::default() };
        let name = Path::new("examples.jsonl");
        let read = read_data_from(name, examples.as_bytes(), &data, &self.tokenizer, self.template.as_ref());
        let (sequences, _) = read.map_err(thrown)?;
        let longest = sequences.iter().map(|sequence| sequence.ids.len()).max().unwrap_or(0);
        let tokens = (longest * options.batch.min(sequences.len())) as u32;
        let mut batches = Batches::new(sequences, options.batch, options.seed).map_err(thrown)?;
        let (rate, steps) = (options.learning_rate, options.steps);
        let schedule = Schedule { rate, warm_up: (steps / 10).min(10), steps, decline: Decline::Cosine, least: 0.1 };
        let lora = LoraOptions { targets, rank: options.rank, alpha: options.alpha, ..LoraOptions::default() };
        let train = TrainOptions { context, tokens, schedule, seed: options.seed, ..TrainOptions::default() };
        let base_model = loaded.model.with_adapters(None);
        let mut trainer = Trainer::lora(&base_model, &lora, train).map_err(thrown)?;
        loaded.gpu.work_done().await.map_err(thrown)?; // the shaders are compiled
        for done in 1..=steps {
            let batch = batches.next_batch();
            let tokens: usize = batch.iter().map(|sequence| sequence.ids.len()).sum();
            let loss = trainer.step(&[batch]).await.map_err(thrown)?;
            let numbers = [done as f64, steps as f64, loss.loss, loss.rate, tokens as f64];
            let go_on = step.apply(&JsValue::NULL, &numbers.into_iter().map(JsValue::from_f64).collect::<Array>());
            if go_on.is_ok_and(|go_on| go_on.is_falsy()) {
                break;
            }
        }
        let mut files = vec![("adapter.gguf", trainer.adapter_gguf().await.map_err(thrown)?)];
        files.extend(trainer.adapter_peft(&base).await.map_err(thrown)?);
        let file = |(name, bytes): (&str, Vec<u8>)| [JsValue::from(name), Uint8Array::from(&bytes[..]).into()];
        Ok(files.into_iter().flat_map(file).collect())
    }

    /// Answers with an adapter, the bytes of a GGUF file, from now on; without one for undefined. The conversation is forgotten.
    #[wasm_bindgen(js_name = setAdapter)]
    pub fn set_adapter(&mut self, gguf: Option<Vec<u8>>) -> Result<(), JsValue> {
        let Some(Loaded { gpu, model, session: now, .. }) = &mut self.loaded else { return Err(thrown(not_loaded())) };
        let adapters = gguf.map(|bytes| {
            let adapter = Gguf::from_bytes(bytes)?;
            Adapters::from_gguf(gpu, model.config(), model.weights(), &adapter).map(Arc::new)
        });
        let other = model.with_adapters(adapters.transpose().map_err(thrown)?);
        *now = session(&other, Some(now.context())).map_err(thrown)?;
        *model = other;
        Ok(())
    }
}
