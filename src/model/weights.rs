//! Weights: a model's tensors on the GPU, which do not change while it runs.

use super::config::Config;
use super::tensors::{Found, Tensors};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::weight::{Vector, Weight};
use std::collections::HashMap;

/// Fields bear GGUF's names. Shapes are [rows, cols]; C channels, H heads, KV kv heads, D head size, F feed-forward,
/// V vocabulary.
pub struct Weights {
    pub token_embd: Weight,     // [V, C]
    pub output_norm: Vector,    // [C]
    pub output: Option<Weight>, // [V, C]; None: tied to token_embd
    pub blocks: Vec<BlockWeights>,
    /// Divisors of the RoPE frequencies, [D / 2] (Llama 3.1 and later).
    pub rope_freqs: Option<Vec<f32>>,
}

pub struct BlockWeights {
    pub attn_norm: Vector,           // [C]
    pub attn_q: Affine,              // [H * D, C]
    pub attn_k: Affine,              // [KV * D, C]
    pub attn_v: Affine,              // [KV * D, C]
    pub attn_q_norm: Option<Vector>, // [D]
    pub attn_k_norm: Option<Vector>, // [D]
    pub attn_output: Affine,         // [C, H * D]
    pub ffn_norm: Vector,            // [C]
    pub ffn_gate: Affine,            // [F, C]
    pub ffn_up: Affine,              // [F, C]
    pub ffn_down: Affine,            // [C, F]
}

/// A matrix, and a bias where the file has one.
pub struct Affine {
    pub weight: Weight,
    pub bias: Option<Vector>,
}

impl Weights {
    /// Sends every tensor up, one after another, in pieces; `progress(done, total)` counts bytes of the file.
    pub fn upload(gpu: &Gpu, gguf: &Gguf, config: &Config, progress: &mut dyn FnMut(u64, u64)) -> Result<Weights> {
        let tensors = Tensors::find(gguf, config)?;
        tensors.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        let total = tensors.found.iter().map(|found| found.info.size).sum();
        let tensors = tensors.found.into_iter().map(|found| (found.slot.name.clone(), found)).collect();
        let mut loader = Loader { gpu, gguf, tensors, done: 0, total, progress };

        let token_embd = loader.matrix("token_embd.weight")?;
        let mut blocks = Vec::new();
        for b in 0..config.block_count {
            let name = |what: &str| format!("blk.{b}.{what}");
            blocks.push(BlockWeights {
                attn_norm: loader.vector(&name("attn_norm.weight"))?,
                attn_q: loader.affine(&name("attn_q"))?,
                attn_k: loader.affine(&name("attn_k"))?,
                attn_v: loader.affine(&name("attn_v"))?,
                attn_q_norm: loader.optional(&name("attn_q_norm.weight"))?,
                attn_k_norm: loader.optional(&name("attn_k_norm.weight"))?,
                attn_output: loader.affine(&name("attn_output"))?,
                ffn_norm: loader.vector(&name("ffn_norm.weight"))?,
                ffn_gate: loader.affine(&name("ffn_gate"))?,
                ffn_up: loader.affine(&name("ffn_up"))?,
                ffn_down: loader.affine(&name("ffn_down"))?,
            });
        }
        let untied = loader.tensors.contains_key("output.weight");
        Ok(Weights {
            token_embd,
            output_norm: loader.vector("output_norm.weight")?,
            output: untied.then(|| loader.matrix("output.weight")).transpose()?,
            blocks,
            rope_freqs: loader.tensors.get("rope_freqs.weight").map(|found| floats(gguf, found)),
        })
    }

    /// The output head: a matrix of its own, or the embedding.
    pub fn head(&self) -> &Weight {
        self.output.as_ref().unwrap_or(&self.token_embd)
    }

    /// Bytes that the matrices take on the GPU.
    pub fn bytes(&self) -> u64 {
        let blocks = self.blocks.iter().flat_map(|b| {
            [&b.attn_q, &b.attn_k, &b.attn_v, &b.attn_output, &b.ffn_gate, &b.ffn_up, &b.ffn_down]
                .map(|a| a.weight.bytes())
        });
        self.token_embd.bytes() + self.output.as_ref().map_or(0, Weight::bytes) + blocks.sum::<u64>()
    }
}

struct Loader<'a> {
    gpu: &'a Gpu,
    gguf: &'a Gguf,
    tensors: HashMap<String, Found<'a>>, // by name; shapes and formats are checked
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
}

impl<'a> Loader<'a> {
    fn take(&mut self, name: &str) -> Result<Found<'a>> {
        let missing = || Error::MissingTensor { name: name.into(), hint: "the model has no such tensor".into() };
        let found = self.tensors.remove(name).ok_or_else(missing)?;
        self.done += found.info.size;
        (self.progress)(self.done, self.total);
        Ok(found)
    }

    fn matrix(&mut self, name: &str) -> Result<Weight> {
        let found = self.take(name)?;
        let (rows, cols) = (found.slot.shape[1] as u32, found.slot.shape[0] as u32);
        Weight::upload(self.gpu, name, found.format, rows, cols, self.gguf.data(found.info))
    }

    fn vector(&mut self, name: &str) -> Result<Vector> {
        let found = self.take(name)?;
        Vector::upload(self.gpu, name, &floats(self.gguf, &found))
    }

    fn optional(&mut self, name: &str) -> Result<Option<Vector>> {
        self.tensors.contains_key(name).then(|| self.vector(name)).transpose()
    }

    fn affine(&mut self, name: &str) -> Result<Affine> {
        let weight = self.matrix(&format!("{name}.weight"))?;
        Ok(Affine { weight, bias: self.optional(&format!("{name}.bias"))? })
    }
}

/// A small tensor as f32.
fn floats(gguf: &Gguf, found: &Found) -> Vec<f32> {
    let mut values = vec![0.0; found.info.count() as usize];
    found.format.decode(gguf.data(found.info), &mut values);
    values
}
