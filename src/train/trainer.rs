//! Trainer: plans of the forward, backward and optimizer's pass over one model, and the step that runs them.

use super::backward::Backward;
use super::batch::{Sequence, counted};
use super::options::{Compute, LoraOptions, Optimizer, TrainOptions};
use super::parameters::Parameters;
use super::workspace::{Workspace, shard};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernels::Gradient;
use crate::kernels::cross_entropy::{cross_entropy, cross_entropy_backward};
use crate::kernels::linear::{Finish, Input, linear};
use crate::kernels::matmul_dw::matmul_dw;
use crate::kernels::matmul_dx::matmul_dx;
use crate::kernels::optimizer::Rates;
use crate::kernels::rms_norm::Rows;
use crate::kernels::{Columns, Dy};
use crate::model::adapters::{Adapter, Adapters, Pair};
use crate::model::state::Activations;
use crate::model::{Model, Target};
use crate::plan::{Plan, PlanBuilder};
use crate::sequences::{Kept, SequenceMode, run};
use crate::taps::Taps;
use crate::tensor::Tensor;
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64;
use std::sync::Arc;

/// A model that learns.
pub struct Trainer {
    model: Model,
    options: TrainOptions,
    parameters: Parameters,
    mode: SequenceMode,
    work: Workspace,
    rates: wgpu::Buffer,
    sums: (wgpu::Buffer, u32),
    plans: Plans,
    /// Steps taken.
    step: u64,
    /// Of them, those that changed nothing.
    skipped: u64,
}

struct Plans {
    /// Forward, and the loss of every token.
    loss: Plan,
    /// The same, then backward: gradients are added.
    gradients: Plan,
    norm: Plan,
    update: Plan,
}

/// What a step found.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Loss {
    /// Mean over the labels that count, before the step.
    pub loss: f64,
    /// Labels that count.
    pub counted: usize,
    /// The length of all gradients together, before clipping.
    pub grad_norm: f64,
    pub rate: f64,
    /// Whether weights were changed: not where the loss or the gradients are not finite.
    pub applied: bool,
}

impl Trainer {
    /// Trains new adapters on a model, which itself stays as it is: any [`Model::load`].
    ///
    /// # Errors
    /// [`Error::Argument`] for options that make no sense, [`Error::Limit`] where the device has no room for them.
    pub fn lora(model: &Model, lora: &LoraOptions, options: TrainOptions) -> Result<Trainer> {
        let config = model.config();
        let bad = |what: &str, expected: &str, got: String| {
            Err(Error::Argument { what: what.into(), expected: expected.into(), got })
        };
        if lora.rank == 0 || lora.rank > config.embedding_length {
            let expected = format!("1 to the embedding length, {}", config.embedding_length);
            return bad("rank", &expected, lora.rank.to_string());
        }
        if lora.targets.is_empty() {
            return bad("targets", "one or more of q, k, v, o, gate, up, down", "none".into());
        }
        check_dropout(lora.dropout)?;
        if !lora.alpha.is_finite() || lora.alpha == 0.0 {
            return bad(
                "alpha",
                "a finite number other than 0, with which nothing would be learned",
                lora.alpha.to_string(),
            );
        }
        let mut random = Pcg64::seed_from_u64(options.seed);
        let (mut a, mut b) = (Vec::new(), Vec::new());
        for block in 0..config.block_count as usize {
            for target in Target::ALL.into_iter().filter(|target| lora.targets.contains(target)) {
                let (n, k) = target.shape(config, block);
                let most = 1.0 / (k as f32).sqrt();
                let draw = |_| (random.next_u32() as f32 / u32::MAX as f32 * 2.0 - 1.0) * most;
                a.push(((block, target), (0..lora.rank * k).map(draw).collect::<Vec<f32>>()));
                b.push(vec![0.0; (n * lora.rank) as usize]);
            }
        }
        let (rank, scale) = (lora.rank, lora.scale());
        let adapters = Adapters::new(model.gpu(), config, model.weights(), |block, target| {
            let place = a.iter().position(|(place, _)| *place == (block, target));
            Ok(place.map(|i| Pair { a: &a[i].1, b: &b[i], rank, scale }))
        })?;
        let model = model.with_adapters(Some(Arc::new(adapters)));
        let parameters = Parameters::of_adapters(&model, options.optimizer.moments())?;
        Trainer::new(model, parameters, lora.dropout, options)
    }

    /// Trains the adapters that a model has ([`Model::with_adapters`]) further: in place.
    ///
    /// # Errors
    /// Those of [`Trainer::lora`]; [`Error::Argument`] for a model without adapters, [`Error::Unsupported`] for adapters of
    /// several ranks or scales, which no adapter file of one alpha could hold.
    pub fn lora_further(model: &Model, dropout: f32, options: TrainOptions) -> Result<Trainer> {
        let adapters = || model.adapters().into_iter().flat_map(|adapters| adapters.blocks.iter().flatten());
        let Some(first) = adapters().next() else {
            let (what, expected) = ("model".into(), "one with adapters".into());
            return Err(Error::Argument { what, expected, got: "one without".into() });
        };
        if let Some(other) = adapters().find(|other| (other.a.rows, other.scale) != (first.a.rows, first.scale)) {
            let of =
                |adapter: &Adapter| format!("{} of rank {}, scale {}", adapter.a.name, adapter.a.rows, adapter.scale);
            let what = format!("training adapters of several ranks or scales: {}; {}", of(first), of(other));
            return Err(Error::Unsupported { what, hint: "Begin new ones".into() });
        }
        check_dropout(dropout)?;
        let parameters = Parameters::of_adapters(model, options.optimizer.moments())?;
        Trainer::new(model.clone(), parameters, dropout, options)
    }

    /// Trains the tensors that `chosen` takes, by their names in a file, of a [`Model::load_masters`]: in place.
    ///
    /// # Errors
    /// Those of [`Trainer::lora`]; [`Error::Argument`] if no tensor is chosen or the model holds no masters.
    pub fn full(model: &Model, chosen: impl Fn(&str) -> bool, options: TrainOptions) -> Result<Trainer> {
        if !model.is_masters() {
            return Err(Error::Argument {
                what: "model".into(),
                expected: "one of Model::load_masters, whose weights can change".into(),
                got: "one whose weights lie as in the file".into(),
            });
        }
        let parameters = Parameters::of_model(model, options.optimizer.moments(), &chosen)?;
        if parameters.list().is_empty() {
            return Err(Error::Argument {
                what: "tensors to train".into(),
                expected: "one or more of the model's".into(),
                got: "none".into(),
            });
        }
        Trainer::new(model.clone(), parameters, 0.0, options)
    }

    fn new(model: Model, parameters: Parameters, dropout: f32, options: TrainOptions) -> Result<Trainer> {
        let TrainOptions { context, tokens, recompute, .. } = options;
        let gpu = model.gpu().clone();
        let logits = Tensor::new(&gpu, "logits", tokens, shard(&model, tokens))?;
        let kept = if recompute { Kept::Inputs } else { Kept::All };
        let mode = SequenceMode::new(&model, context, tokens, kept, dropout, logits, &Taps::default())?;
        let work = Workspace::new(&model, tokens)?;
        let rates = Parameters::rates_buffer(&gpu)?;
        let backward = Backward { pass: mode.pass(), parameters: &parameters, work: &work, recompute };
        let plan = |learns: bool| {
            let mut plan = PlanBuilder::new(&gpu, tokens);
            plan.exact = options.compute == Compute::F32;
            mode.forward(&mut plan, learns)?;
            loss(&mut plan, &mode, &work)?;
            if learns {
                head_backward(&mut plan, &model, &backward)?;
                backward.blocks(&mut plan)?;
            }
            plan.finish(if learns { "gradients" } else { "loss" })
        };
        let (norm, sums, count) = parameters.norm_plan(&gpu)?;
        let update = parameters.update_plan(&gpu, options.optimizer, &rates)?;
        let plans = Plans { loss: plan(false)?, gradients: plan(true)?, norm, update };
        #[cfg(not(target_arch = "wasm32"))]
        if !gpu.is_outline() {
            gpu.save_pipelines();
        }
        let sums = (sums, count);
        Ok(Trainer { model, options, parameters, mode, work, rates, sums, plans, step: 0, skipped: 0 })
    }

    /// The model as it is now, with its adapters: for sessions that use what was learned so far.
    pub fn model(&self) -> &Model {
        &self.model
    }

    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    pub fn options(&self) -> &TrainOptions {
        &self.options
    }

    /// The pass that computes gradients.
    pub fn plan(&self) -> &Plan {
        &self.plans.gradients
    }

    /// Steps taken.
    pub fn steps(&self) -> u64 {
        self.step
    }

    /// Steps that changed nothing, as their loss or gradients were not finite.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Goes on as if so many steps had been taken and skipped: for a run that is taken up again.
    #[cfg(not(target_arch = "wasm32"))]
    pub(super) fn set_steps(&mut self, steps: u64, skipped: u64) {
        (self.step, self.skipped) = (steps, skipped);
    }

    fn gpu(&self) -> &Gpu {
        self.model.gpu()
    }

    /// The mean loss over the labels that count; nothing learns.
    ///
    /// # Errors
    /// Those of [`Trainer::step`].
    pub async fn loss(&self, batch: &[Sequence]) -> Result<f64> {
        let counted = counted(batch, self.model.config().vocab_size)?;
        let tokens = self.send(batch, counted)?;
        run(self.gpu(), &self.plans.loss, tokens);
        Ok(self.losses(tokens).await? / counted as f64)
    }

    /// One step: the gradient of the mean loss over all labels that count in `batches`, one pass each, and the change that
    /// the optimizer makes of it.
    ///
    /// # Errors
    /// [`Error::Argument`] for a batch that has no label to learn, has too many tokens or ids that the model does not know;
    /// nothing is changed then.
    pub async fn step(&mut self, batches: &[Vec<Sequence>]) -> Result<Loss> {
        let (loss, counted) = self.gradients(batches).await?;
        let grad_norm = self.grad_norm().await?;
        let rate = self.options.schedule.at(self.step);
        let applied = loss.is_finite() && grad_norm.is_finite();
        if applied {
            let clip = self.options.clip.map_or(1.0, |most| (most / grad_norm).min(1.0));
            self.update(rate, clip);
        }
        self.skipped += !applied as u64;
        self.step += 1;
        self.gpu().check()?;
        Ok(Loss { loss, counted, grad_norm, rate, applied })
    }

    /// The gradients of the mean loss over all labels that count in `batches`, for [`Parameters::read`]; that loss, and how
    /// many labels count.
    ///
    /// # Errors
    /// Those of [`Trainer::step`].
    pub async fn gradients(&self, batches: &[Vec<Sequence>]) -> Result<(f64, usize)> {
        let mut all = 0;
        for batch in batches {
            all += counted(batch, self.model.config().vocab_size)?;
        }
        if all == 0 {
            let (what, expected) = ("batches".into(), "one or more".into());
            return Err(Error::Argument { what, expected, got: "none".into() });
        }
        let mut encoder = self.gpu().device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        self.parameters.clear_gradients(&mut encoder);
        self.gpu().queue().submit([encoder.finish()]);
        let mut sum = 0.0;
        for (i, batch) in batches.iter().enumerate() {
            let tokens = self.send(batch, all)?;
            if let Some(dropout) = &self.mode.activations.dropout {
                let seed = Pcg64::seed_from_u64(self.options.seed ^ (self.step << 16 | i as u64)).next_u32();
                self.gpu().queue().write_buffer(&dropout.seed, 0, bytemuck::bytes_of(&seed));
            }
            run(self.gpu(), &self.plans.gradients, tokens);
            sum += self.losses(tokens).await?;
        }
        Ok((sum / all as f64, all))
    }

    /// The gradients' length; f64 from sums that the GPU made.
    async fn grad_norm(&self) -> Result<f64> {
        run(self.gpu(), &self.plans.norm, 1);
        let bytes = self.gpu().read(&self.sums.0, 0, self.sums.1 as u64 * 4).await?;
        let sums: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        Ok(sums.iter().map(|&sum| sum as f64).sum::<f64>().sqrt())
    }

    fn update(&self, rate: f64, clip: f64) {
        let steps = (self.step + 1 - self.skipped) as f64; // that left something in the moments
        let (beta1, beta2, eps, decay) = match self.options.optimizer {
            Optimizer::AdamW(adamw) => (adamw.beta1, adamw.beta2, adamw.eps, adamw.decay),
            Optimizer::Sgd { momentum, decay } => (momentum, 0.0, 0.0, decay),
        };
        let rates = Rates {
            rate: rate as f32,
            clip: clip as f32,
            decay: decay as f32,
            beta1: beta1 as f32,
            beta2: beta2 as f32,
            eps: eps as f32,
            lacks1: (1.0 - beta1.powf(steps)) as f32,
            lacks2: (1.0 - beta2.powf(steps)) as f32,
        };
        self.gpu().queue().write_buffer(&self.rates, 0, bytemuck::bytes_of(&rates));
        run(self.gpu(), &self.plans.update, 1);
    }

    /// Sends a batch to the GPU, for a mean over `counted` labels; the number of its tokens.
    fn send(&self, batch: &[Sequence], counted: usize) -> Result<u32> {
        let ids: Vec<&[u32]> = batch.iter().map(|sequence| sequence.ids.as_slice()).collect();
        let labels: Vec<u32> = batch.iter().flat_map(|sequence| &sequence.labels).copied().collect();
        let tokens = self.mode.send(&ids)?;
        let shares = vec![1.0 / counted as f32; labels.len()];
        self.gpu().queue().write_buffer(&self.work.labels, 0, bytemuck::cast_slice(&labels));
        self.gpu().queue().write_buffer(&self.work.shares, 0, bytemuck::cast_slice(&shares));
        Ok(tokens)
    }

    /// The sum of the losses of the pass that just ran.
    async fn losses(&self, tokens: u32) -> Result<f64> {
        let bytes = self.gpu().read(&self.work.seen, 0, tokens as u64 * 16).await?;
        let seen: Vec<[f32; 4]> = bytemuck::pod_collect_to_vec(&bytes);
        Ok(seen.iter().map(|seen| seen[3] as f64).sum())
    }
}

fn check_dropout(share: f32) -> Result<()> {
    if (0.0..1.0).contains(&share) {
        return Ok(());
    }
    let (what, expected) = ("dropout".into(), "a share from 0 to below 1".into());
    Err(Error::Argument { what, expected, got: share.to_string() })
}

/// Shards of the vocabulary: (first id, how many).
fn shards(model: &Model, tokens: u32) -> Vec<(u32, u32)> {
    let (vocab, shard) = (model.config().vocab_size, shard(model, tokens));
    (0..vocab).step_by(shard as usize).map(|first| (first, shard.min(vocab - first))).collect()
}

/// The room for logits as that of a shard's.
fn of_shard(a: &Activations, count: u32) -> Tensor {
    Tensor { cols: count, ..a.logits.clone() }
}

/// The loss of every token, over the shards of the vocabulary.
fn loss(plan: &mut PlanBuilder, mode: &SequenceMode, work: &Workspace) -> Result<()> {
    let a = &mode.activations;
    for (first, count) in shards(mode.model(), plan.max_tokens) {
        let logits = of_shard(a, count);
        let head = mode.model().weights().head().rows(first, count);
        linear(plan, "logits", &a.last, Input::Plain, &head, None, Rows::All, Finish::Store(&logits))?;
        cross_entropy(plan, "loss", &logits, first, &work.labels, &work.seen)?;
    }
    Ok(())
}

/// Back from the loss to the last block's results, whose gradient comes into `work.dx`. Logits of all but the last shard
/// are made once more: all of them at once would be a matrix of tokens by vocabulary.
fn head_backward(plan: &mut PlanBuilder, model: &Model, backward: &Backward) -> Result<()> {
    let Backward { pass, work, parameters, .. } = backward;
    let (w, a) = (pass.w, pass.a);
    let name = if w.output.is_some() { "output.weight" } else { "token_embd.weight" };
    for (i, (first, count)) in shards(model, plan.max_tokens).into_iter().rev().enumerate() {
        let logits = of_shard(a, count);
        let head = w.head().rows(first, count);
        if i > 0 {
            linear(plan, "logits", &a.last, Input::Plain, &head, None, Rows::All, Finish::Store(&logits))?;
        }
        cross_entropy_backward(plan, "dlogits", &logits, first, &work.labels, &work.shares, &work.seen)?;
        for master in parameters.masters(name).unwrap_or_default() {
            let begin = first.max(master.first_row);
            let end = (first + count).min(master.first_row + master.w.rows);
            if begin < end {
                let columns = Columns::all(&logits).part(begin - first, end - begin);
                let dy = Dy { tensor: &logits, columns, scale: 1.0 };
                let row = begin - master.first_row;
                matmul_dw(plan, "head.dw", dy, &a.last, &master.gradient, row, Gradient::Add)?;
            }
        }
        let to = if i == 0 { Gradient::Store } else { Gradient::Add };
        matmul_dx(plan, "head.dx", &logits, &head, &work.dnormed, to)?;
    }
    backward.norm(plan, "output_norm", &a.x, &w.output_norm, Gradient::Store)
}
