//! New models: a config with random weights, as a GGUF file in memory.

use crate::error::{Error, Result};
use crate::formats::Format;
use crate::gguf::{Gguf, Value, Writer};
use crate::model::tensors::{Need, Role, slots};
use crate::model::{Architecture, Config};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;

/// The numbers of a new model. Dims: C channels, H heads, KV kv heads, D head size, F feed-forward.
#[derive(Debug, Clone, PartialEq)]
pub struct NewModel {
    pub architecture: Architecture,
    pub name: String,
    pub blocks: u32,
    /// C
    pub embedding: u32,
    /// H
    pub heads: u32,
    /// KV, a divisor of H
    pub kv_heads: u32,
    /// D, a multiple of 4
    pub head_size: u32,
    /// F
    pub feed_forward: u32,
    /// Tokens that it shall see at once.
    pub context: u32,
    pub rope_base: f32,
    pub rms_eps: f32,
    /// The embedding is the output head.
    pub tied: bool,
}

/// Deviation of the weights: that of GPT-2.
const DEVIATION: f64 = 0.02;

impl NewModel {
    /// A model file with the vocabulary of another (its `tokenizer.` keys) and weights drawn from a seed: matrices normal with
    /// deviation 0.02, those that add to the residual stream divided by sqrt(2 blocks); gains are ones, biases zeros.
    ///
    /// # Errors
    /// What [`Config::from_gguf`] says of the numbers; [`Error::MissingKey`] if the other file holds no vocabulary.
    pub fn gguf(&self, vocabulary: &Gguf, seed: u64) -> Result<Gguf> {
        let name = self.architecture.name();
        let key = |key: &str| format!("{name}.{key}");
        let mut writer = Writer::new();
        writer
            .set("general.architecture", name)
            .set("general.name", self.name.as_str())
            .set(&key("block_count"), self.blocks)
            .set(&key("context_length"), self.context)
            .set(&key("embedding_length"), self.embedding)
            .set(&key("feed_forward_length"), self.feed_forward)
            .set(&key("attention.head_count"), self.heads)
            .set(&key("attention.head_count_kv"), self.kv_heads)
            .set(&key("attention.key_length"), self.head_size)
            .set(&key("attention.value_length"), self.head_size)
            .set(&key("attention.layer_norm_rms_epsilon"), self.rms_eps)
            .set(&key("rope.freq_base"), self.rope_base)
            .set(&key("rope.dimension_count"), self.head_size);
        let tokenizer: Vec<&(String, Value)> =
            vocabulary.metadata().iter().filter(|(key, _)| key.starts_with("tokenizer.")).collect();
        if vocabulary.strings("tokenizer.ggml.tokens")?.is_none_or(|tokens| tokens.is_empty()) {
            let hint = "give a GGUF file with a vocabulary, which the new model shall have".into();
            return Err(Error::MissingKey { key: "tokenizer.ggml.tokens".into(), hint });
        }
        tokenizer.into_iter().for_each(|(key, value)| {
            writer.set(key, value.clone());
        });
        let config = Config::from_gguf(&Gguf::from_bytes(writer.to_bytes()?)?)?;

        let mut random = Normal { random: Pcg64::seed_from_u64(seed), spare: None };
        let mut tensors = Vec::new();
        for slot in slots(&config) {
            let wanted = slot.need == Need::Required
                || slot.name == "output.weight" && !self.tied
                || slot.need == Need::Usual && slot.name.ends_with(".bias");
            if !wanted {
                continue;
            }
            let count = slot.shape.iter().product::<u64>() as usize;
            let adds = ["attn_output.weight", "ffn_down.weight"].iter().any(|name| slot.name.ends_with(name));
            let deviation = if adds { DEVIATION / (2.0 * self.blocks as f64).sqrt() } else { DEVIATION };
            let values: Vec<f32> = match slot.role {
                Role::Matrix => (0..count).map(|_| (random.next() * deviation) as f32).collect(),
                Role::Vector => vec![if slot.name.ends_with(".bias") { 0.0 } else { 1.0 }; count],
            };
            tensors.push((slot, values));
        }
        for (slot, values) in &tensors {
            writer.tensor(&slot.name, &slot.shape, Format::F32.tensor_type(), bytemuck::cast_slice(values));
        }
        Gguf::from_bytes(writer.to_bytes()?)
    }
}

/// A projection [C, donor's C] from a seed: normal, of a deviation that keeps lengths.
pub(crate) fn projection(channels: u32, donor: u32, seed: u64) -> Vec<f32> {
    let mut random = Normal { random: Pcg64::seed_from_u64(seed ^ 0x70726f6a), spare: None };
    let deviation = 1.0 / (donor as f64).sqrt();
    (0..channels * donor).map(|_| (random.next() * deviation) as f32).collect()
}

/// Normal numbers by Box and Muller's method.
struct Normal {
    random: Pcg64,
    spare: Option<f64>,
}

impl Normal {
    fn next(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        let mut uniform = || ((self.random.next_u64() >> 11) as f64 + 0.5) / (1u64 << 53) as f64; // never 0
        let (radius, angle) = ((-2.0 * uniform().ln()).sqrt(), std::f64::consts::TAU * uniform());
        self.spare = Some(radius * angle.sin());
        radius * angle.cos()
    }
}
