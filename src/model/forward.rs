//! forward: the model as a flat list of ops, one call each. It reads like the paper; running it builds a plan.
//!
//! Norms cost a pass of one token no step: the step that writes the residual stream also writes what the next one wants
//! of it ([`Finish::AddNorm`]). What is tapped is written into a tensor of its own by the very steps that write it anyway;
//! then norms are steps in every pass, and what a branch adds to the stream is stored before it is added.

use super::adapters::{Adapters, Target};
use super::config::Config;
use super::state::{Activations, BlockActivations, Operand, Sequences};
use super::weights::{Affine, GateUp, Weights};
use crate::error::Result;
use crate::kernels::add::add;
use crate::kernels::attention::attention;
use crate::kernels::attention_backward::attention_sequence;
use crate::kernels::dropout::dropout;
use crate::kernels::embed::embed;
use crate::kernels::linear::{Finish, Input, linear};
use crate::kernels::quantize::quantize;
use crate::kernels::rms_norm::{Rows, rms_norm};
use crate::kernels::rope::rope;
use crate::kernels::rope_kv::{Angles, HeadNorms, KvCache, rope_kv};
use crate::kernels::swiglu::swiglu;
use crate::kernels::{Gradient, attention_backward::Heads};
use crate::plan::PlanBuilder;
use crate::tensor::Tensor;
use crate::weight::Weight;

/// What a pass works with.
#[derive(Clone, Copy)]
pub struct Pass<'a> {
    pub config: &'a Config,
    pub w: &'a Weights,
    pub adapters: Option<&'a Adapters>,
    pub angles: &'a Angles,
    pub keys: Keys<'a>,
    pub a: &'a Activations,
    /// Adapters' inputs are dropped at random, where there is dropout: while they learn.
    pub drops: bool,
}

/// Where attention finds keys and values.
#[derive(Clone, Copy)]
pub enum Keys<'a> {
    /// One sequence: the caches of all blocks, to which the pass adds its own.
    Cached(&'a [KvCache]),
    /// Whole sequences, one after another: in the pass itself.
    Sequences(&'a Sequences),
}

/// Adds the steps of one pass over `a.ids` to the plan: logits of every token, or of the last one only.
pub fn forward(plan: &mut PlanBuilder, pass: &Pass, logits: Rows) -> Result<()> {
    let Pass { config, w, a, .. } = *pass;
    let input = blocks(plan, pass)?;
    let head = w.head();
    let mut x = a.normed.of(head);
    if !a.single {
        rms_norm(plan, "output_norm", &a.x, &w.output_norm, config.rms_eps, logits, &a.last)?;
        x = &a.last;
    }
    linear(plan, "logits", x, input, head, None, logits, Finish::Store(&a.logits))
}

/// The embedding and all blocks; what the head's input must still be multiplied with.
pub fn blocks<'a>(plan: &mut PlanBuilder, pass: &Pass<'a>) -> Result<Input<'a>> {
    let a = pass.a;
    let x = a.block.first().map_or(&a.x, |s| &s.x);
    match (&pass.w.projection, &a.donor) {
        (Some(projection), Some(donor)) => {
            embed(plan, "donor", &pass.w.token_embd, &a.ids, donor)?;
            linear(plan, "embed", donor, Input::Plain, projection, None, Rows::All, Finish::Store(x))?;
        }
        _ => embed(plan, "embed", &pass.w.token_embd, &a.ids, x)?,
    }
    let mut input = Input::Plain; // of the next matrix
    for b in 0..pass.w.blocks.len() {
        input = block(plan, pass, b, input)?;
    }
    Ok(input)
}

/// One transformer block. `input` is what its own must still be multiplied with; the result is the same for the next.
pub fn block<'a>(plan: &mut PlanBuilder, pass: &Pass<'a>, b: usize, mut input: Input<'a>) -> Result<Input<'a>> {
    let Pass { config, w, a, .. } = *pass;
    let (block, s, eps) = (&w.blocks[b], &a.block[b], config.rms_eps);
    let single = a.single;
    let name = |what: &str| format!("blk.{b}.{what}");

    let qkv_weight = &block.attn_qkv.weight;
    if matches!(input, Input::Plain) {
        rms_norm(plan, &name("attn_norm"), &s.x, &block.attn_norm, eps, Rows::All, &s.attn_norm.floats)?;
        in_bytes(plan, &name("attn_norm.bytes"), &s.attn_norm, qkv_weight)?;
    }
    let qkv = Finish::Store(&s.qkv);
    affine(plan, &name("attn_qkv"), s.attn_norm.of(qkv_weight), input, &block.attn_qkv, qkv)?;
    adapt(plan, pass, b, &[Target::Q, Target::K, Target::V], &s.attn_norm, input, &s.qkv)?;
    attend(plan, pass, b)?;

    if single {
        adapt(plan, pass, b, &[Target::Output], &s.attn, Input::Plain, &s.mid)?;
    }
    let gate_up = &block.ffn_gate_up.affine.weight;
    let finish = match single {
        true => {
            let normed = s.ffn_norm.of(gate_up);
            Finish::AddNorm { y: &s.mid, gain: &block.ffn_norm, normed, squares: &a.squares }
        }
        false => residual(&s.x, &s.mid),
    };
    let attn = s.attn.of(&block.attn_output.weight);
    match &s.attn_out {
        Some(branch) => {
            affine(plan, &name("attn_output"), attn, Input::Plain, &block.attn_output, Finish::Store(branch))?;
            adapt(plan, pass, b, &[Target::Output], &s.attn, Input::Plain, branch)?;
            add(plan, &name("attn_residual"), &s.x, branch, &s.mid)?;
        }
        None => {
            affine(plan, &name("attn_residual"), attn, Input::Plain, &block.attn_output, finish)?;
            if !single {
                adapt(plan, pass, b, &[Target::Output], &s.attn, Input::Plain, &s.mid)?;
            }
        }
    }
    if single {
        input = Input::Normed { squares: &a.squares, eps };
    } else {
        input = Input::Plain;
        rms_norm(plan, &name("ffn_norm"), &s.mid, &block.ffn_norm, eps, Rows::All, &s.ffn_norm.floats)?;
    }
    feed_forward(plan, pass, b, input)?;

    if single {
        adapt(plan, pass, b, &[Target::Down], &s.swiglu, Input::Plain, &s.out)?;
    }
    let (next_gain, next_norm, next) = match (w.blocks.get(b + 1), a.block.get(b + 1)) {
        (Some(next), Some(next_s)) => (&next.attn_norm, &next_s.attn_norm, &next.attn_qkv.weight),
        _ => (&w.output_norm, &a.normed, w.head()),
    };
    let finish = match single {
        true => Finish::AddNorm { y: &s.out, gain: next_gain, normed: next_norm.of(next), squares: &a.squares },
        false => residual(&s.mid, &s.out),
    };
    let swiglu = s.swiglu.of(&block.ffn_down.weight);
    match &s.ffn_out {
        Some(branch) => {
            affine(plan, &name("ffn_down"), swiglu, Input::Plain, &block.ffn_down, Finish::Store(branch))?;
            adapt(plan, pass, b, &[Target::Down], &s.swiglu, Input::Plain, branch)?;
            add(plan, &name("ffn_residual"), &s.mid, branch, &s.out)?;
        }
        None => {
            affine(plan, &name("ffn_residual"), swiglu, Input::Plain, &block.ffn_down, finish)?;
            if !single {
                adapt(plan, pass, b, &[Target::Down], &s.swiglu, Input::Plain, &s.out)?;
            }
        }
    }
    Ok(input)
}

/// QK norm, RoPE and attention.
fn attend(plan: &mut PlanBuilder, pass: &Pass, b: usize) -> Result<()> {
    let Pass { config, w, angles, .. } = *pass;
    let (block, s) = (&w.blocks[b], &pass.a.block[b]);
    let name = |what: &str| format!("blk.{b}.{what}");
    let norms = HeadNorms { q: block.attn_q_norm.as_ref(), k: block.attn_k_norm.as_ref(), eps: config.rms_eps };
    let (kv_heads, head_size) = (config.kv_heads[b], config.head_size);
    match (pass.keys, &s.splits, &s.sequence) {
        (Keys::Cached(caches), Some(splits), _) => {
            rope_kv(plan, &name("rope_kv"), &s.qkv, angles, norms, kv_heads, &s.q, &caches[b])?;
            let bytes = s.attn.bytes_for(&block.attn_output.weight);
            attention(plan, &name("attn"), &s.q, &caches[b], kv_heads, head_size, splits, &s.attn.floats, bytes)
        }
        (Keys::Sequences(sequences), _, Some(kept)) => {
            let shape = heads(config, b);
            let positions = &sequences.positions;
            rope(plan, &name("rope_kv"), shape, &s.qkv, angles, norms, positions, &s.q, &kept.inverses)?;
            let bounds = &sequences.bounds;
            attention_sequence(plan, &name("attn"), shape, bounds, &s.q, &s.attn.floats, &kept.log_sums)
        }
        _ => unreachable!("activations are made for a cache or for sequences, as the pass is"),
    }
}

pub(crate) fn heads(config: &Config, b: usize) -> Heads {
    Heads { heads: config.heads[b], kv_heads: config.kv_heads[b], head_size: config.head_size }
}

/// y = x + results; x and y may be one tensor.
fn residual<'a>(x: &'a Tensor, y: &'a Tensor) -> Finish<'a> {
    if x.buffer == y.buffer { Finish::Add(y) } else { Finish::Sum { residual: x, y } }
}

fn affine(plan: &mut PlanBuilder, label: &str, x: &Tensor, input: Input, w: &Affine, finish: Finish) -> Result<()> {
    linear(plan, label, x, input, &w.weight, w.bias.as_ref(), Rows::All, finish)
}

/// y = silu(gate x) * up x.
fn feed_forward(plan: &mut PlanBuilder, pass: &Pass, b: usize, input: Input) -> Result<()> {
    let (block, s) = (&pass.w.blocks[b], &pass.a.block[b]);
    let GateUp { affine: w, alternating } = &block.ffn_gate_up;
    let (x, down, label) = (s.ffn_norm.of(&w.weight), &block.ffn_down.weight, format!("blk.{b}.swiglu"));
    if *alternating && !s.keeps_gate_up {
        return affine(plan, &label, x, input, w, Finish::Swiglu(s.swiglu.of(down)));
    }
    affine(plan, &format!("{label}.gate_up"), x, input, w, Finish::Store(&s.gate_up))?;
    adapt(plan, pass, b, &[Target::Gate, Target::Up], &s.ffn_norm, input, &s.gate_up)?;
    swiglu(plan, &label, &s.gate_up, block.ffn_gate_up.lie(), &s.swiglu.floats)?;
    in_bytes(plan, &format!("{label}.bytes"), &s.swiglu, down)
}

/// What the adapters of some targets add to y, the results of the matrix that holds them.
fn adapt(
    plan: &mut PlanBuilder,
    pass: &Pass,
    b: usize,
    targets: &[Target],
    x: &Operand,
    input: Input,
    y: &Tensor,
) -> Result<()> {
    let Some(adapters) = pass.adapters else { return Ok(()) };
    let s: &BlockActivations = &pass.a.block[b];
    for (i, (adapter, low)) in adapters.blocks[b].iter().zip(&s.low).enumerate() {
        if !targets.contains(&adapter.target) {
            continue;
        }
        let label = format!("blk.{b}.{}.lora", adapter.target.name());
        let mut x = &x.floats;
        if let (Some(drop), Some(dropped)) = (pass.a.dropout.as_ref().filter(|_| pass.drops), s.dropped.get(i)) {
            let (p, salt) = (drop.probability, dropout_salt(b, i));
            dropout(plan, &format!("{label}_x"), x, p, &drop.seed, salt, dropped, Gradient::Store)?;
            x = dropped;
        }
        linear(plan, &format!("{label}_a"), x, input, &adapter.a, None, Rows::All, Finish::Store(low))?;
        let finish = Finish::AddColumns { y, columns: adapter.columns, scale: adapter.scale };
        linear(plan, &format!("{label}_b"), low, Input::Plain, &adapter.b, None, Rows::All, finish)?;
    }
    Ok(())
}

/// Tells the dropout of one adapter from those of all others.
pub(crate) fn dropout_salt(block: usize, adapter: usize) -> u32 {
    (block * Target::ALL.len() + adapter) as u32
}

/// Floats to bytes, if the matrix wants bytes.
fn in_bytes(plan: &mut PlanBuilder, label: &str, x: &Operand, w: &Weight) -> Result<()> {
    x.bytes_for(w).map_or(Ok(()), |bytes| quantize(plan, label, &x.floats, bytes))
}
