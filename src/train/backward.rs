//! The backward pass: forward's list in reverse, one call an op. Gradients bear the name of what they belong to, with a d.

use super::parameters::{Master, Parameters};
use super::workspace::Workspace;
use crate::error::Result;
use crate::kernels::add_bias_backward::add_bias_backward;
use crate::kernels::attention_backward::{AttentionBackward, attention_dkv, attention_dq};
use crate::kernels::dropout::dropout;
use crate::kernels::embed_backward::embed_backward;
use crate::kernels::heads_norm_backward::heads_norm_backward;
use crate::kernels::linear::Input;
use crate::kernels::matmul_dw::matmul_dw;
use crate::kernels::matmul_dx::matmul_dx;
use crate::kernels::rms_norm_backward::{heads_dgain, rms_norm_backward, rms_norm_dgain};
use crate::kernels::rope_backward::rope_backward;
use crate::kernels::rope_kv::HeadNorms;
use crate::kernels::swiglu_backward::swiglu_backward;
use crate::kernels::{Columns, Dy, Gradient};
use crate::model::Target;
use crate::model::forward::{Keys, Pass, block, dropout_salt, heads};
use crate::model::weights::{Affine, PROJECTION};
use crate::plan::PlanBuilder;
use crate::tensor::Tensor;
use crate::weight::Vector;

/// What the backward pass works with.
pub(super) struct Backward<'a> {
    pub pass: Pass<'a>,
    pub parameters: &'a Parameters,
    pub work: &'a Workspace,
    /// Blocks' activations are computed again.
    pub recompute: bool,
}

impl Backward<'_> {
    /// From the gradient of the last block's results, in `work.dx`, through all blocks and the embedding, as far down as
    /// something learns.
    pub fn blocks(&self, plan: &mut PlanBuilder) -> Result<()> {
        let count = self.pass.w.blocks.len();
        let lowest = (0..count).find(|&b| self.learns_in(b)).unwrap_or(count);
        let projection = self.parameters.masters(PROJECTION);
        let embedding = self.parameters.masters("token_embd.weight").or(projection);
        for b in (0..count).rev().filter(|&b| b >= lowest || embedding.is_some()) {
            if self.recompute {
                block(plan, &self.pass, b, Input::Plain)?;
            }
            self.block(plan, b, b > lowest || embedding.is_some())?;
        }
        if let (Some(masters), Some(donor)) = (projection, &self.pass.a.donor) {
            for master in masters {
                let columns = Columns::all(&self.work.dx).part(master.first_row, master.w.rows);
                let dy = Dy { tensor: &self.work.dx, columns, scale: 1.0 };
                matmul_dw(plan, "dprojection", dy, donor, &master.gradient, 0, Gradient::Add)?;
            }
            return Ok(());
        }
        for master in embedding.unwrap_or_default() {
            let rows = (master.first_row, master.w.rows);
            embed_backward(plan, "dtoken_embd", &self.pass.a.ids, &self.work.dx, &master.gradient, rows)?;
        }
        Ok(())
    }

    fn learns_in(&self, b: usize) -> bool {
        let prefix = format!("blk.{b}.");
        self.parameters.list().iter().any(|parameter| parameter.name.starts_with(&prefix))
    }

    /// Through one block: dx becomes the gradient of what went in, if that is wanted below.
    fn block(&self, plan: &mut PlanBuilder, b: usize, wanted_below: bool) -> Result<()> {
        let (block, s, work) = (&self.pass.w.blocks[b], &self.pass.a.block[b], self.work);
        let name = |what: &str| format!("blk.{b}.{what}");
        let (dx, dnormed) = (&work.dx, &work.dnormed);

        // Feed-forward
        let dswiglu = work.like(&s.swiglu.floats, "dswiglu")?;
        self.linear(plan, b, "ffn_down", &block.ffn_down, &s.swiglu.floats, dx, Some(&dswiglu))?;
        let dgate_up = work.like(&s.gate_up, "dgate_up")?;
        swiglu_backward(plan, &name("dgate_up"), &s.gate_up, block.ffn_gate_up.lie(), &dswiglu, &dgate_up)?;
        let gate_up = &block.ffn_gate_up.affine;
        self.linear(plan, b, "ffn_gate_up", gate_up, &s.ffn_norm.floats, &dgate_up, Some(dnormed))?;
        self.norm(plan, &name("ffn_norm"), &s.mid, &block.ffn_norm, Gradient::Add)?;

        // Attention
        let dattn = work.like(&s.attn.floats, "dattn")?;
        self.linear(plan, b, "attn_output", &block.attn_output, &s.attn.floats, dx, Some(&dattn))?;
        let dqkv = self.attention(plan, b, &dattn)?;
        let below = wanted_below || self.parameters.masters(&name("attn_norm.weight")).is_some();
        let dinput = below.then_some(dnormed);
        self.linear(plan, b, "attn_qkv", &block.attn_qkv, &s.attn_norm.floats, &dqkv, dinput)?;
        if below {
            self.norm(plan, &name("attn_norm"), &s.x, &block.attn_norm, Gradient::Add)?;
        }
        Ok(())
    }

    /// From attention's results to what the projection gave: through RoPE and the heads' norms. dqkv [T, H + KV + KV, D].
    fn attention(&self, plan: &mut PlanBuilder, b: usize, dattn: &Tensor) -> Result<Tensor> {
        let (block, s, work) = (&self.pass.w.blocks[b], &self.pass.a.block[b], self.work);
        let name = |what: &str| format!("blk.{b}.{what}");
        let (Keys::Sequences(sequences), Some(kept)) = (self.pass.keys, &s.sequence) else {
            unreachable!("only whole sequences are trained on");
        };
        let shape = heads(self.pass.config, b);
        let (bounds, turned, y) = (&sequences.bounds, &s.q, &s.attn.floats);
        let dqkv = work.like(&s.q, "dqkv")?;
        let means = work.like_columns(shape.heads, "means")?;
        let (log_sums, means) = (&kept.log_sums, &means.buffer);
        let of = AttentionBackward { shape, bounds, qkv: turned, dy: dattn, log_sums, means, dqkv: &dqkv };
        attention_dq(plan, &name("dq"), of, y)?;
        attention_dkv(plan, &name("dkv"), of)?;
        let turning = shape.heads + shape.kv_heads;
        let (angles, positions) = (self.pass.angles, &sequences.positions);
        rope_backward(plan, &name("rope_backward"), angles, positions, turning, shape.head_size, &dqkv)?;
        let norms =
            HeadNorms { q: block.attn_q_norm.as_ref(), k: block.attn_k_norm.as_ref(), eps: self.pass.config.rms_eps };
        for (norm, of) in [("attn_q_norm", (0, shape.heads)), ("attn_k_norm", (shape.heads, shape.kv_heads))] {
            for master in self.masters(&name(&format!("{norm}.weight"))) {
                let (label, dgain) = (name(&format!("d{norm}")), &master.gradient);
                heads_dgain(plan, &label, &s.qkv, &dqkv, &kept.inverses, of, dgain, Gradient::Add)?;
            }
        }
        if norms.q.is_some() || norms.k.is_some() {
            heads_norm_backward(plan, &name("heads_norm"), shape, &s.qkv, &kept.inverses, norms, &dqkv)?;
        }
        Ok(dqkv)
    }

    /// Through RMSNorm: `work.dnormed`, of the norm's results, becomes `work.dx` of what went in, stored or added.
    pub fn norm(&self, plan: &mut PlanBuilder, label: &str, x: &Tensor, gain: &Vector, to: Gradient) -> Result<()> {
        let (eps, work) = (self.pass.config.rms_eps, self.work);
        let (dy, inverses) = (&work.dnormed, &work.inverses);
        rms_norm_backward(plan, &format!("{label}.dx"), x, gain, eps, dy, &work.dx, to, inverses)?;
        for master in self.masters(&format!("{label}.weight")) {
            rms_norm_dgain(plan, &format!("{label}.dgain"), x, dy, inverses, &master.gradient, Gradient::Add)?;
        }
        Ok(())
    }

    /// Through y = W x + bias and the adapters of W: what learns of them, and dx where it is wanted.
    #[allow(clippy::too_many_arguments)]
    fn linear(
        &self,
        plan: &mut PlanBuilder,
        b: usize,
        fused: &str,
        w: &Affine,
        x: &Tensor,
        dy: &Tensor,
        dx: Option<&Tensor>,
    ) -> Result<()> {
        let name = format!("blk.{b}.{fused}");
        for master in self.masters(&format!("{name}.weight")) {
            let columns = Columns::all(dy).part(master.first_row, master.w.rows);
            let dy = Dy { tensor: dy, columns, scale: 1.0 };
            matmul_dw(plan, &format!("{name}.dw"), dy, x, &master.gradient, 0, Gradient::Add)?;
        }
        for master in self.masters(&format!("{name}.bias")) {
            add_bias_backward(plan, &format!("{name}.dbias"), dy, &master.gradient, Gradient::Add)?;
        }
        if let Some(dx) = dx {
            matmul_dx(plan, &format!("{name}.dx"), dy, &w.weight, dx, Gradient::Store)?;
        }
        self.adapters(plan, b, fused, x, dy, dx)
    }

    /// Through y += scale B (A x), for each adapter of a fused matrix.
    fn adapters(
        &self,
        plan: &mut PlanBuilder,
        b: usize,
        fused: &str,
        x: &Tensor,
        dy: &Tensor,
        dx: Option<&Tensor>,
    ) -> Result<()> {
        let Some(adapters) = self.pass.adapters else { return Ok(()) };
        let (a, s) = (self.pass.a, &self.pass.a.block[b]);
        for (i, (adapter, low)) in adapters.blocks[b].iter().zip(&s.low).enumerate() {
            if fused_name(adapter.target) != fused {
                continue;
            }
            let label = |what: &str| format!("blk.{b}.{}.lora.{what}", adapter.target.name());
            let dy = Dy { tensor: dy, columns: adapter.columns, scale: adapter.scale };
            for master in self.masters(&adapter.b.name) {
                let columns = adapter.columns.part(master.first_row, master.w.rows);
                matmul_dw(plan, &label("db"), Dy { columns, ..dy }, low, &master.gradient, 0, Gradient::Add)?;
            }
            let dlow = self.work.like(low, "dlow")?;
            matmul_dx(plan, &label("dlow"), dy, &adapter.b, &dlow, Gradient::Store)?;
            let x = s.dropped.get(i).unwrap_or(x);
            for master in self.masters(&adapter.a.name) {
                matmul_dw(plan, &label("da"), &dlow, x, &master.gradient, 0, Gradient::Add)?;
            }
            match (dx, &a.dropout, s.dropped.get(i)) {
                (None, ..) => {}
                (Some(dx), Some(drop), Some(dropped)) => {
                    let ddropped = self.work.like(dropped, "ddropped")?;
                    matmul_dx(plan, &label("dx"), &dlow, &adapter.a, &ddropped, Gradient::Store)?;
                    let (p, salt) = (drop.probability, dropout_salt(b, i));
                    dropout(plan, &label("dropout"), &ddropped, p, &drop.seed, salt, dx, Gradient::Add)?;
                }
                (Some(dx), ..) => matmul_dx(plan, &label("dx"), &dlow, &adapter.a, dx, Gradient::Add)?,
            }
        }
        Ok(())
    }

    fn masters(&self, name: &str) -> &[Master] {
        self.parameters.masters(name).unwrap_or_default()
    }
}

/// The fused matrix that holds a target's rows.
fn fused_name(target: Target) -> &'static str {
    match target {
        Target::Q | Target::K | Target::V => "attn_qkv",
        Target::Output => "attn_output",
        Target::Gate | Target::Up => "ffn_gate_up",
        Target::Down => "ffn_down",
    }
}
