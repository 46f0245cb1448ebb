//! The loss of a whole model over a batch, and its gradient by every tensor: the forward pass of [`ReferenceModel`] with
//! everything it computed kept, then its steps in reverse.

use super::backward::*;
use super::model::ReferenceModel;
use super::ops::{self, Number};
use crate::error::Result;
use crate::train::{Sequence, counted};
use std::collections::HashMap;

/// By the tensors' names, each in its tensor's shape.
pub type Gradients<F> = HashMap<String, Vec<F>>;

/// What the forward pass of one sequence left: its steps' results by label.
struct Kept<F>(HashMap<String, Vec<F>>);

impl<F> Kept<F> {
    fn get(&self, label: &str) -> &[F] {
        &self.0[label]
    }

    /// What a block's matrix gave, its bias included.
    fn linear(&self, block: usize, name: &str) -> &[F] {
        self.0.get(&format!("blk.{block}.{name}.bias")).unwrap_or_else(|| &self.0[&format!("blk.{block}.{name}")])
    }
}

impl<F: Number> ReferenceModel<F> {
    /// The mean loss over the labels that are not ignored. Sequences do not see one another. The model's own sequence is
    /// forgotten.
    ///
    /// # Errors
    /// [`Error::Argument`] for an id or a label outside the vocabulary, for labels that are not as many as the tokens, and
    /// where all labels are ignored.
    pub fn loss(&mut self, batch: &[Sequence]) -> Result<f64> {
        let (counted, v) = (counted(batch, self.config.vocab_size)?, self.config.vocab_size as usize);
        let mut sum = 0.0;
        for sequence in batch {
            self.truncate(0);
            let logits = self.append(&sequence.ids)?;
            sum += cross_entropy(&logits, &sequence.labels, v).iter().map(|loss| loss.to_f64()).sum::<f64>();
        }
        Ok(sum / counted as f64)
    }

    /// The gradient of [`loss`](ReferenceModel::loss) by every tensor; the errors are the same.
    pub fn gradients(&mut self, batch: &[Sequence]) -> Result<Gradients<F>> {
        let share = F::of(1.0 / counted(batch, self.config.vocab_size)? as f64);
        let mut gradients = Gradients::new();
        for sequence in batch {
            self.truncate(0);
            let mut kept = HashMap::new();
            self.append_traced(&sequence.ids, &mut |label, values| {
                kept.insert(label.to_string(), values.to_vec());
            })?;
            self.sequence_backward(sequence, &Kept(kept), share, &mut gradients);
        }
        Ok(gradients)
    }

    /// `share` is what a token's loss weighs in the mean.
    fn sequence_backward(&self, sequence: &Sequence, kept: &Kept<F>, share: F, gradients: &mut Gradients<F>) {
        let Sequence { ids, labels } = sequence;
        let (c, v) = (self.config.embedding_length as usize, self.config.vocab_size as usize);
        let t = ids.len();
        let output = if self.weights.contains_key("output.weight") { "output.weight" } else { "token_embd.weight" };

        let dlogits = cross_entropy_backward(kept.get("logits"), labels, v, &vec![share; t]); // [T, V]
        add_gradient(gradients, output, matmul_dw(&dlogits, kept.get("output_norm"), t, c, v));
        let dnormed = matmul_dx(&dlogits, self.weight(output), t, c, v); // [T, C]
        let mut dx = self.norm_backward(
            "output_norm.weight",
            self.block_input(kept, self.config.block_count as usize),
            &dnormed,
            gradients,
        );
        for block in (0..self.config.block_count as usize).rev() {
            dx = self.block_backward(block, kept, dx, gradients);
        }
        add_gradient(gradients, "token_embd.weight", embed_backward(&dx, ids, v, c));
    }

    /// Through one transformer block, its lines in reverse. dy `[T, C]` -> dx `[T, C]`.
    fn block_backward(&self, i: usize, kept: &Kept<F>, dy: Vec<F>, gradients: &mut Gradients<F>) -> Vec<F> {
        let (h, kv, d) =
            (self.config.heads[i] as usize, self.config.kv_heads[i] as usize, self.config.head_size as usize);
        let positions: Vec<u32> = (0..(dy.len() / self.config.embedding_length as usize) as u32).collect();
        let at = |name: &str| kept.get(&format!("blk.{i}.{name}"));
        let weight = |name: &str| format!("blk.{i}.{name}.weight");

        // Feed-forward
        let dhidden = self.linear_backward(i, "ffn_down", at("swiglu"), &dy, gradients); // [T, F]
        let (dgate, dup) = swiglu_backward(kept.linear(i, "ffn_gate"), kept.linear(i, "ffn_up"), &dhidden);
        let dnormed = ops::add(
            &self.linear_backward(i, "ffn_gate", at("ffn_norm"), &dgate, gradients),
            &self.linear_backward(i, "ffn_up", at("ffn_norm"), &dup, gradients),
        ); // [T, C]
        let dbranch = self.norm_backward(&weight("ffn_norm"), at("attn_residual"), &dnormed, gradients);
        let dy = ops::add(&dy, &dbranch); // [T, C]

        // Attention
        let dattended = self.linear_backward(i, "attn_output", at("attn"), &dy, gradients); // [T, H, D]
        let v = kept.linear(i, "attn_v");
        let (dq, dk, dv) = attention_backward(at("rope_kv"), at("rope_k"), v, h, kv, d, &dattended);
        let mut dq = rope_backward(&dq, &positions, h, d, &self.rope); // [T, H, D]
        let mut dk = rope_backward(&dk, &positions, kv, d, &self.rope); // [T, KV, D]
        if self.weights.contains_key(&weight("attn_q_norm")) {
            dq = self.norm_backward(&weight("attn_q_norm"), kept.linear(i, "attn_q"), &dq, gradients);
        }
        if self.weights.contains_key(&weight("attn_k_norm")) {
            dk = self.norm_backward(&weight("attn_k_norm"), kept.linear(i, "attn_k"), &dk, gradients);
        }
        let dqk = ops::add(
            &self.linear_backward(i, "attn_q", at("attn_norm"), &dq, gradients),
            &self.linear_backward(i, "attn_k", at("attn_norm"), &dk, gradients),
        );
        let dnormed = ops::add(&dqk, &self.linear_backward(i, "attn_v", at("attn_norm"), &dv, gradients)); // [T, C]
        let dbranch = self.norm_backward(&weight("attn_norm"), self.block_input(kept, i), &dnormed, gradients);
        ops::add(&dy, &dbranch)
    }

    /// The residual stream as it goes into a block, or out of the last. `[T, C]`
    fn block_input<'a>(&self, kept: &'a Kept<F>, block: usize) -> &'a [F] {
        match block {
            0 => kept.get("embed"),
            _ => kept.get(&format!("blk.{}.ffn_residual", block - 1)),
        }
    }

    /// The gradients of a norm's gain (kept) and of x (given).
    fn norm_backward(&self, name: &str, x: &[F], dy: &[F], gradients: &mut Gradients<F>) -> Vec<F> {
        let (dx, dgain) = rms_norm_backward(x, self.weight(name), self.config.rms_eps, dy);
        add_gradient(gradients, name, dgain);
        dx
    }

    /// The gradients of a block's matrix and its bias (kept) and of x (given). x `[T, K]`, dy `[T, N]` -> `[T, K]`.
    fn linear_backward(&self, block: usize, name: &str, x: &[F], dy: &[F], gradients: &mut Gradients<F>) -> Vec<F> {
        let name = format!("blk.{block}.{name}");
        let weight = &self.weights[&format!("{name}.weight")]; // [N, K]
        let (k, n) = (weight.row_length, weight.values.len() / weight.row_length);
        let t = x.len() / k;
        if self.weights.contains_key(&format!("{name}.bias")) {
            add_gradient(gradients, &format!("{name}.bias"), add_bias_backward(dy, n));
        }
        add_gradient(gradients, &format!("{name}.weight"), matmul_dw(dy, x, t, k, n));
        matmul_dx(dy, &weight.values, t, k, n)
    }
}

/// A tensor that is used twice (a tied head, a batch) has the sum of its gradients.
fn add_gradient<F: Number>(gradients: &mut Gradients<F>, name: &str, more: Vec<F>) {
    match gradients.get_mut(name) {
        Some(sum) => *sum = ops::add(sum, &more),
        None => {
            gradients.insert(name.into(), more);
        }
    }
}
