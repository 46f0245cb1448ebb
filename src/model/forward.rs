//! forward: the model as a flat list of ops, one call each. It reads like the paper; running it builds a plan.
//!
//! Norms cost a pass of one token no step: the step that writes the residual stream also writes what the next one wants
//! of it ([`Finish::AddNorm`]).

use super::config::Config;
use super::state::{Activations, Operand};
use super::weights::{Affine, GateUp, Weights};
use crate::error::Result;
use crate::kernels::attention::attention;
use crate::kernels::embed::embed;
use crate::kernels::linear::{Finish, Input, linear};
use crate::kernels::quantize::quantize;
use crate::kernels::rms_norm::{Rows, rms_norm};
use crate::kernels::rope_kv::{Angles, HeadNorms, KvCache, rope_kv};
use crate::kernels::swiglu::swiglu;
use crate::plan::PlanBuilder;
use crate::tensor::Tensor;
use crate::weight::{Vector, Weight};

/// Adds the steps of one pass over `a.ids` to the plan: logits of every token, or of the last one only.
pub fn forward(
    plan: &mut PlanBuilder,
    config: &Config,
    w: &Weights,
    angles: &Angles,
    caches: &[KvCache],
    a: &Activations,
    logits: Rows,
) -> Result<()> {
    let (eps, head_size) = (config.rms_eps, config.head_size);
    let single = plan.max_tokens == 1;
    embed(plan, "embed", &w.token_embd, &a.ids, &a.x)?;
    let mut input = Input::Plain; // of the next matrix
    for (b, block) in w.blocks.iter().enumerate() {
        let (cache, kv_heads, s) = (&caches[b], config.kv_heads[b], &a.block[b]);
        let name = |what: &str| format!("blk.{b}.{what}");
        let qkv_weight = &block.attn_qkv.weight;
        if matches!(input, Input::Plain) {
            rms_norm(plan, &name("attn_norm"), &a.x, &block.attn_norm, eps, Rows::All, &a.normed.floats)?;
            in_bytes(plan, &name("attn_norm.bytes"), &a.normed, qkv_weight)?;
        }
        let qkv = Finish::Store(&s.qkv);
        affine(plan, &name("attn_qkv"), a.normed.of(qkv_weight), input, &block.attn_qkv, qkv)?;
        let norms = HeadNorms { q: block.attn_q_norm.as_ref(), k: block.attn_k_norm.as_ref(), eps };
        rope_kv(plan, &name("rope_kv"), &s.qkv, angles, norms, kv_heads, &s.q, cache)?;
        let bytes = s.attn.bytes_for(&block.attn_output.weight);
        attention(plan, &name("attn"), &s.q, cache, kv_heads, head_size, &s.splits, &s.attn.floats, bytes)?;

        let gate_up = &block.ffn_gate_up.affine.weight;
        let finish = residual(single, a, &block.ffn_norm, gate_up);
        let attn = s.attn.of(&block.attn_output.weight);
        affine(plan, &name("attn_residual"), attn, Input::Plain, &block.attn_output, finish)?;
        if single {
            input = Input::Normed { squares: &a.squares, eps };
        } else {
            rms_norm(plan, &name("ffn_norm"), &a.x, &block.ffn_norm, eps, Rows::All, &a.normed.floats)?;
        }
        let (x, down) = (a.normed.of(gate_up), &block.ffn_down.weight);
        feed_forward(plan, &name("swiglu"), x, input, &block.ffn_gate_up, &s.gate_up, &s.swiglu, down)?;
        let (next_gain, next) = match w.blocks.get(b + 1) {
            Some(next) => (&next.attn_norm, &next.attn_qkv.weight),
            None => (&w.output_norm, w.head()),
        };
        let swiglu = s.swiglu.of(down);
        let finish = residual(single, a, next_gain, next);
        affine(plan, &name("ffn_residual"), swiglu, Input::Plain, &block.ffn_down, finish)?;
    }
    let head = w.head();
    let mut x = a.normed.of(head);
    if !single {
        rms_norm(plan, "output_norm", &a.x, &w.output_norm, eps, logits, &a.last)?;
        x = &a.last;
    }
    linear(plan, "logits", x, input, head, None, logits, Finish::Store(&a.logits))
}

/// Into the residual stream; with one token also what the next matrix wants of it.
fn residual<'a>(single: bool, a: &'a Activations, gain: &'a Vector, next: &Weight) -> Finish<'a> {
    match single {
        true => Finish::AddNorm { y: &a.x, gain, normed: a.normed.of(next), squares: &a.squares },
        false => Finish::Add(&a.x),
    }
}

fn affine(plan: &mut PlanBuilder, label: &str, x: &Tensor, input: Input, w: &Affine, finish: Finish) -> Result<()> {
    linear(plan, label, x, input, &w.weight, w.bias.as_ref(), Rows::All, finish)
}

/// y = silu(gate x) * up x.
#[allow(clippy::too_many_arguments)]
fn feed_forward(
    plan: &mut PlanBuilder,
    label: &str,
    x: &Tensor,
    input: Input,
    w: &GateUp,
    gate_up: &Tensor,
    y: &Operand,
    down: &Weight,
) -> Result<()> {
    if w.alternating {
        return affine(plan, label, x, input, &w.affine, Finish::Swiglu(y.of(down)));
    }
    affine(plan, &format!("{label}.gate_up"), x, input, &w.affine, Finish::Store(gate_up))?;
    swiglu(plan, label, gate_up, &y.floats)?;
    in_bytes(plan, &format!("{label}.bytes"), y, down)
}

/// Floats to bytes, if the matrix wants bytes.
fn in_bytes(plan: &mut PlanBuilder, label: &str, x: &Operand, w: &Weight) -> Result<()> {
    x.bytes_for(w).map_or(Ok(()), |bytes| quantize(plan, label, &x.floats, bytes))
}
