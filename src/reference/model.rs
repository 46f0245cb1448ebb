//! A whole model on the CPU, in f32 or f64: what the GPU must compute, written so that it can be read beside the paper.
//! Weights are decoded once; nothing is fused, cached or skipped beyond the KV cache.

use super::ops::{self, Number};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::model::tensors::Tensors;
use crate::model::{Config, Rope};
use std::collections::HashMap;

/// Config, weights and state of one sequence. Dims as in [`Config`], and T tokens of one call.
pub struct ReferenceModel<F = f32> {
    pub(super) config: Config,
    pub(super) rope: Rope,
    pub(super) weights: HashMap<String, Weight<F>>, // by GGUF's name
    keys: Vec<Vec<F>>,                              // for each block [position, KV, D]
    values: Vec<Vec<F>>,                            // for each block [position, KV, D]
    position: usize,
}

/// A tensor, rows one after another.
pub(super) struct Weight<F> {
    pub values: Vec<F>,
    pub row_length: usize,
}

impl<F: Number> ReferenceModel<F> {
    /// Decodes all weights: 4 or 8 bytes for each, so this is for models of some hundred million at most.
    /// The errors are those of [`Config::from_gguf`] and [`Tensors::find`].
    pub fn from_gguf(gguf: &Gguf) -> Result<ReferenceModel<F>> {
        let config = Config::from_gguf(gguf)?;
        let (mut weights, mut rope_factors) = (HashMap::new(), None);
        for tensor in Tensors::find(gguf, &config)?.found {
            let values = gguf.floats(tensor.info)?;
            if tensor.slot.name == "rope_freqs.weight" {
                rope_factors = Some(values.clone());
            }
            let values = values.into_iter().map(|v| F::of(v as f64)).collect();
            weights.insert(tensor.slot.name, Weight { values, row_length: tensor.slot.shape[0] as usize });
        }
        let rope = Rope::new(&config.rope, rope_factors.as_deref())?;
        let blocks = config.block_count as usize;
        Ok(ReferenceModel {
            config,
            rope,
            weights,
            keys: vec![Vec::new(); blocks],
            values: vec![Vec::new(); blocks],
            position: 0,
        })
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    /// How many tokens have been appended.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Forgets every token from `position` on.
    pub fn truncate(&mut self, position: usize) {
        self.position = self.position.min(position);
    }

    /// Appends tokens and gives the logits after each of them. ids `[T]` -> `[T, V]`.
    /// An id outside the vocabulary is [`Error::Argument`].
    pub fn append(&mut self, ids: &[u32]) -> Result<Vec<F>> {
        self.append_traced(ids, &mut |_, _| {})
    }

    /// [`append`](ReferenceModel::append) that hands out every intermediate `[T, ..]` under the label that its step has
    /// in a [`Plan`](crate::plan::Plan): "blk.0.attn_q".
    pub fn append_traced(&mut self, ids: &[u32], trace: &mut dyn FnMut(&str, &[F])) -> Result<Vec<F>> {
        if let Some(id) = ids.iter().find(|&&id| id >= self.config.vocab_size) {
            let expected = format!("an id below the vocabulary's {}", self.config.vocab_size);
            return Err(Error::Argument { what: "token id".into(), expected, got: id.to_string() });
        }
        let (c, v, eps) = (self.config.embedding_length as usize, self.config.vocab_size as usize, self.config.rms_eps);
        let positions: Vec<u32> = (self.position..self.position + ids.len()).map(|position| position as u32).collect();

        let mut x = ops::embed(self.weight("token_embd.weight"), ids, c); // [T, C]
        trace("embed", &x);
        for block in 0..self.config.block_count as usize {
            x = self.block(block, x, &positions, &mut |name, values| trace(&format!("blk.{block}.{name}"), values));
        }
        self.position += ids.len();

        let h = ops::rms_norm(&x, self.weight("output_norm.weight"), eps); // [T, C]
        trace("output_norm", &h);
        let tied = !self.weights.contains_key("output.weight"); // then the embedding is the output head as well
        let output = self.weight(if tied { "token_embd.weight" } else { "output.weight" }); // [V, C]
        let logits = ops::matmul(&h, output, ids.len(), c, v); // [T, V]
        trace("logits", &logits);
        Ok(logits)
    }

    /// One transformer block. x `[T, C]` -> `[T, C]`.
    fn block(&mut self, i: usize, x: Vec<F>, positions: &[u32], trace: &mut dyn FnMut(&str, &[F])) -> Vec<F> {
        let (h, kv) = (self.config.heads[i] as usize, self.config.kv_heads[i] as usize);
        let (d, eps) = (self.config.head_size as usize, self.config.rms_eps);
        let mut step = |name: &str, values: Vec<F>| {
            trace(name, &values);
            values
        };

        // Attention
        let normed = step("attn_norm", ops::rms_norm(&x, self.block_weight(i, "attn_norm"), eps)); // [T, C]
        let mut q = self.linear(i, "attn_q", &normed, &mut step); // [T, H, D]
        let mut k = self.linear(i, "attn_k", &normed, &mut step); // [T, KV, D]
        let v = self.linear(i, "attn_v", &normed, &mut step); // [T, KV, D]
        step("attn_qkv", side_by_side(&[&q, &k, &v], positions.len())); // as the GPU computes them: in one step
        if self.has(i, "attn_q_norm.weight") {
            q = step("attn_q_norm", ops::rms_norm(&q, self.block_weight(i, "attn_q_norm"), eps)); // each head by itself
        }
        if self.has(i, "attn_k_norm.weight") {
            k = step("attn_k_norm", ops::rms_norm(&k, self.block_weight(i, "attn_k_norm"), eps));
        }
        let q = step("rope_kv", ops::rope(&q, positions, h, d, &self.rope));
        let k = step("rope_k", ops::rope(&k, positions, kv, d, &self.rope));

        let (keys, values) = (&mut self.keys[i], &mut self.values[i]);
        let rows = self.position + positions.len();
        keys.resize(rows * kv * d, F::of(0.0));
        values.resize(rows * kv * d, F::of(0.0));
        ops::kv_store(keys, &k, self.position, kv, d);
        ops::kv_store(values, &v, self.position, kv, d);

        let attended = step("attn", ops::attention(&q, keys, values, self.position, h, kv, d)); // [T, H, D]
        let branch = self.linear(i, "attn_output", &attended, &mut step); // [T, C]
        let x = step("attn_residual", ops::add(&x, &branch)); // [T, C]

        // Feed-forward
        let normed = step("ffn_norm", ops::rms_norm(&x, self.block_weight(i, "ffn_norm"), eps)); // [T, C]
        let gate = self.linear(i, "ffn_gate", &normed, &mut step); // [T, F]
        let up = self.linear(i, "ffn_up", &normed, &mut step); // [T, F]
        step("swiglu.gate_up", side_by_side(&[&gate, &up], positions.len()));
        let hidden = step("swiglu", ops::swiglu(&gate, &up)); // [T, F]
        let branch = self.linear(i, "ffn_down", &hidden, &mut step); // [T, C]
        step("ffn_residual", ops::add(&x, &branch)) // [T, C]
    }

    /// x times the block's weight of this name, plus its bias if it has one. x `[T, K]` -> `[T, N]`.
    fn linear(&self, block: usize, name: &str, x: &[F], step: &mut impl FnMut(&str, Vec<F>) -> Vec<F>) -> Vec<F> {
        let weight = &self.weights[&format!("blk.{block}.{name}.weight")]; // [N, K]
        let (k, n) = (weight.row_length, weight.values.len() / weight.row_length);
        let y = step(name, ops::matmul(x, &weight.values, x.len() / k, k, n));
        match self.weights.get(&format!("blk.{block}.{name}.bias")) {
            Some(bias) => step(&format!("{name}.bias"), ops::add_bias(&y, &bias.values)),
            None => y,
        }
    }

    /// A tensor's numbers, to change them; None if the model has no such tensor.
    pub fn weight_mut(&mut self, name: &str) -> Option<&mut [F]> {
        Some(&mut self.weights.get_mut(name)?.values)
    }

    fn has(&self, block: usize, name: &str) -> bool {
        self.weights.contains_key(&format!("blk.{block}.{name}"))
    }

    fn block_weight(&self, block: usize, name: &str) -> &[F] {
        self.weight(&format!("blk.{block}.{name}.weight"))
    }

    /// A tensor that is there: Tensors::find has checked it.
    pub(super) fn weight(&self, name: &str) -> &[F] {
        &self.weights[name].values
    }
}

/// Rows `[T, A]`, `[T, B]`, .. -> `[T, A + B + ..]`.
fn side_by_side<F: Number>(parts: &[&[F]], tokens: usize) -> Vec<F> {
    let row = |t: usize, part: &&[F]| part.chunks_exact(part.len() / tokens).nth(t).unwrap_or_default().to_vec();
    (0..tokens).flat_map(|t| parts.iter().flat_map(move |part| row(t, part))).collect()
}
