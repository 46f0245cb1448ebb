//! forward: the model as a flat list of ops, one call each. It reads like the paper; running it builds a plan.

use super::config::Config;
use super::state::Activations;
use super::weights::{Affine, Weights};
use crate::error::Result;
use crate::kernels::add::add;
use crate::kernels::add_bias::add_bias;
use crate::kernels::attention::attention;
use crate::kernels::embed::embed;
use crate::kernels::kv_store::{KvCache, kv_store};
use crate::kernels::linear::linear;
use crate::kernels::rms_norm::{Rows, rms_norm};
use crate::kernels::rope::{Angles, rope};
use crate::kernels::swiglu::swiglu;
use crate::plan::PlanBuilder;
use crate::tensor::Tensor;

/// Adds the steps of one pass over `a.ids` to the plan: logits of every token, or of the last one only.
pub fn forward(
    plan: &mut PlanBuilder,
    config: &Config,
    w: &Weights,
    angles: &Angles,
    cache: &[KvCache],
    a: &Activations,
    logits: Rows,
) -> Result<()> {
    let (eps, head_size) = (config.rms_eps, config.head_size);
    embed(plan, "embed", &w.token_embd, &a.ids, &a.x)?;
    for (b, w) in w.blocks.iter().enumerate() {
        let (cache, kv_heads, s) = (&cache[b], config.kv_heads[b], &a.block[b]);
        let name = |what: &str| format!("blk.{b}.{what}");

        rms_norm(plan, &name("attn_norm"), &a.x, &w.attn_norm, eps, Rows::All, &a.normed)?;
        affine(plan, &name("attn_q"), &a.normed, &w.attn_q, &s.q)?;
        affine(plan, &name("attn_k"), &a.normed, &w.attn_k, &s.k)?;
        affine(plan, &name("attn_v"), &a.normed, &w.attn_v, &s.v)?;
        let (mut q, mut k) = (&s.q, &s.k);
        if let Some(gain) = &w.attn_q_norm {
            rms_norm(plan, &name("attn_q_norm"), q, gain, eps, Rows::All, &s.q_normed)?;
            q = &s.q_normed;
        }
        if let Some(gain) = &w.attn_k_norm {
            rms_norm(plan, &name("attn_k_norm"), k, gain, eps, Rows::All, &s.k_normed)?;
            k = &s.k_normed;
        }
        rope(plan, &name("rope_q"), angles, head_size, q)?;
        rope(plan, &name("rope_k"), angles, head_size, k)?;
        kv_store(plan, &name("kv_store"), k, &s.v, cache)?;
        attention(plan, &name("attn"), q, cache, kv_heads, head_size, &s.attn)?;
        affine(plan, &name("attn_output"), &s.attn, &w.attn_output, &a.branch)?;
        add(plan, &name("attn_residual"), &a.branch, &a.x)?;

        rms_norm(plan, &name("ffn_norm"), &a.x, &w.ffn_norm, eps, Rows::All, &a.normed)?;
        affine(plan, &name("ffn_gate"), &a.normed, &w.ffn_gate, &s.gate)?;
        affine(plan, &name("ffn_up"), &a.normed, &w.ffn_up, &s.up)?;
        swiglu(plan, &name("swiglu"), &s.gate, &s.up, &s.swiglu)?;
        affine(plan, &name("ffn_down"), &s.swiglu, &w.ffn_down, &a.branch)?;
        add(plan, &name("ffn_residual"), &a.branch, &a.x)?;
    }
    rms_norm(plan, "output_norm", &a.x, &w.output_norm, eps, logits, &a.normed)?;
    linear(plan, "logits", &a.normed, w.head(), logits, &a.logits)
}

/// y = W x + bias, where there is a bias.
fn affine(plan: &mut PlanBuilder, label: &str, x: &Tensor, w: &Affine, y: &Tensor) -> Result<()> {
    linear(plan, label, x, &w.weight, Rows::All, y)?;
    match &w.bias {
        Some(bias) => add_bias(plan, &format!("{label}.bias"), bias, y),
        None => Ok(()),
    }
}
