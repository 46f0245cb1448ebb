//! Sequence mode: whole sequences side by side in one pass, without a cache. They lie flat, one after another, and do not see
//! one another; their lengths may differ. It is the same forward pass as for inference, and the way of a training step.

use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernels::attention::check_head_size;
use crate::kernels::linear::{Finish, Input, Squares, linear};
use crate::kernels::rms_norm::{Rows, rms_norm};
use crate::kernels::rope_kv::Angles;
use crate::model::forward::{Keys, Pass, blocks};
use crate::model::state::{Activations, BlockActivations, Dropout, Operand, SequenceActivations, Sequences};
use crate::model::weights::BlockWeights;
use crate::model::{Model, Rope};
use crate::plan::{Frame, Plan, PlanBuilder};
use crate::taps::{Readout, Tap, Tapped, Taps, extend};
use crate::tensor::Tensor;

/// Tokens of one pass at most: a dimension of workgroups.
pub const MOST_TOKENS: u32 = 65_535;
/// Tokens whose logits are made at once, when they are asked for.
const LOGITS_CHUNK: u32 = 16;

/// Room for a pass over whole sequences of a model.
pub(crate) struct SequenceMode {
    model: Model,
    context: u32,
    tokens: u32,
    angles: Angles,
    pub(crate) sequences: Sequences,
    pub(crate) activations: Activations,
}

/// What of the activations stays until the next pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// What goes into each block.
    Inputs,
    /// All that the backward pass will ask for.
    All,
}

impl SequenceMode {
    /// For passes of up to `tokens` tokens, of sequences of up to `context`.
    ///
    /// # Errors
    /// [`Error::Argument`] without tokens or with too many, [`Error::Unsupported`] for a model whose attention cannot be
    /// computed so, [`Error::Limit`] where the device has no room.
    pub(crate) fn new(
        model: &Model,
        context: u32,
        tokens: u32,
        kept: Kept,
        dropout: f32,
        logits: Tensor,
        taps: &Taps,
    ) -> Result<SequenceMode> {
        // on processors a workgroup takes eight queries of one kv head
        let shared_by = model.config().heads.iter().zip(&model.config().kv_heads).map(|(h, kv)| h / kv).max();
        let most = match model.gpu().profile().lanes {
            true => MOST_TOKENS.min(MOST_TOKENS / shared_by.unwrap_or(1).max(1) * 8),
            false => MOST_TOKENS,
        };
        if tokens == 0 || tokens > most || context == 0 {
            let (expected, got) = (format!("1 to {most}"), format!("{tokens}, in sequences of {context}"));
            return Err(Error::Argument { what: "tokens of a pass".into(), expected, got });
        }
        let (gpu, config) = (model.gpu(), model.config());
        check_head_size(config.head_size)?;
        let rope = Rope::new(&config.rope, model.weights().rope_freqs.as_deref())?;
        let mut activations = activations(model, tokens, kept == Kept::All, dropout, logits)?;
        activations.tap(gpu, taps)?;
        Ok(SequenceMode {
            angles: Angles::upload(gpu, &rope, context)?,
            sequences: Sequences {
                positions: gpu.buffer("positions", tokens as u64 * 4)?,
                bounds: gpu.buffer("bounds", tokens as u64 * 8)?,
            },
            activations,
            model: model.clone(),
            context,
            tokens,
        })
    }

    pub fn model(&self) -> &Model {
        &self.model
    }

    /// What forward takes.
    pub(crate) fn pass(&self) -> Pass<'_> {
        Pass {
            config: self.model.config(),
            w: self.model.weights(),
            adapters: self.model.adapters(),
            angles: &self.angles,
            keys: Keys::Sequences(&self.sequences),
            a: &self.activations,
            drops: true,
        }
    }

    /// Adds the pass up to the output norm, which leaves every token's last state in `activations.last`.
    pub(crate) fn forward(&self, plan: &mut PlanBuilder, drops: bool) -> Result<()> {
        let (pass, a) = (Pass { drops, ..self.pass() }, &self.activations);
        blocks(plan, &pass)?;
        rms_norm(plan, "output_norm", &a.x, &pass.w.output_norm, pass.config.rms_eps, Rows::All, &a.last)
    }

    /// Sends the sequences to the GPU; the number of their tokens.
    ///
    /// # Errors
    /// [`Error::Argument`] for sequences that do not fit, are empty, or hold ids that the model does not know.
    pub(crate) fn send(&self, sequences: &[&[u32]]) -> Result<u32> {
        let bad = |what: &str, expected: String, got: String| Err(Error::Argument { what: what.into(), expected, got });
        let vocab = self.model.config().vocab_size;
        let (mut ids, mut positions, mut bounds) = (Vec::new(), Vec::new(), Vec::new());
        for sequence in sequences {
            let (first, length) = (ids.len() as u32, sequence.len() as u32);
            if length == 0 || length > self.context {
                return bad("tokens of a sequence", format!("1 to {}", self.context), length.to_string());
            }
            if let Some(id) = sequence.iter().find(|&&id| id >= vocab) {
                return bad("token id", format!("below the vocabulary's {vocab}"), id.to_string());
            }
            ids.extend_from_slice(sequence);
            positions.extend(0..length);
            bounds.extend((0..length).map(|_| [first, first + length]));
        }
        if ids.is_empty() || ids.len() > self.tokens as usize {
            return bad("tokens of a batch", format!("1 to {}", self.tokens), ids.len().to_string());
        }
        let queue = self.model.gpu().queue();
        queue.write_buffer(&self.activations.ids, 0, bytemuck::cast_slice(&ids));
        queue.write_buffer(&self.sequences.positions, 0, bytemuck::cast_slice(&positions));
        queue.write_buffer(&self.sequences.bounds, 0, bytemuck::cast_slice(&bounds));
        Ok(ids.len() as u32)
    }
}

/// Records one pass and submits it.
pub(crate) fn run(gpu: &Gpu, plan: &Plan, tokens: u32) {
    let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    plan.record(&mut encoder, Frame { position: 0, tokens });
    gpu.queue().submit([encoder.finish()]);
}

/// Logits of whole sequences, of all tokens or of chosen ones.
pub struct SequenceLogits {
    mode: SequenceMode,
    plan: Plan,
    /// A chunk of tokens' last states, and the plan from there to their logits.
    chosen: Tensor, // [LOGITS_CHUNK, C]
    head: Plan,
    taps: Taps,
    /// Of the pass, and of a chunk's logits.
    readout: Option<Readout>,
    logits_readout: Option<Readout>,
}

impl Model {
    /// Room for passes of up to `tokens` tokens in all, of sequences of up to `context` tokens: in f32 throughout.
    ///
    /// # Errors
    /// [`Error::Argument`] without tokens or with too many, [`Error::Unsupported`] for heads that are no multiple of 4
    /// up to 256, [`Error::Limit`] where the device has no room.
    pub fn sequences(&self, context: u32, tokens: u32) -> Result<SequenceLogits> {
        SequenceLogits::new(self, context, tokens, Taps::default())
    }
}

impl SequenceLogits {
    fn new(model: &Model, context: u32, tokens: u32, taps: Taps) -> Result<SequenceLogits> {
        let (gpu, config, w) = (model.gpu(), model.config(), model.weights());
        let logits = Tensor::new(gpu, "logits", LOGITS_CHUNK, config.vocab_size)?;
        let mode = SequenceMode::new(model, context, tokens, Kept::Inputs, 0.0, logits, &taps)?;
        let mut plan = PlanBuilder::new(gpu, tokens);
        plan.exact = true;
        mode.forward(&mut plan, false)?;
        let plan = plan.finish("sequences")?;
        let chosen = Tensor::new(gpu, "chosen", LOGITS_CHUNK, config.embedding_length)?;
        let mut head = PlanBuilder::new(gpu, LOGITS_CHUNK);
        head.exact = true;
        let finish = Finish::Store(&mode.activations.logits);
        linear(&mut head, "logits", &chosen, Input::Plain, w.head(), None, Rows::All, finish)?;
        let head = head.finish("logits")?;
        let (logits, blocks): (Vec<Tap>, Vec<Tap>) = taps.list().iter().partition(|tap| **tap == Tap::Logits);
        let readout = Readout::new(gpu, &blocks, &mode.activations, tokens)?;
        let logits_readout = Readout::new(gpu, &logits, &mode.activations, LOGITS_CHUNK)?;
        Ok(SequenceLogits { mode, plan, chosen, head, taps, readout, logits_readout })
    }

    /// Reads the activations that match the pattern out of every later run, beside those tapped before; see
    /// [`Taps::add`]. The plan is built anew.
    ///
    /// # Errors
    /// [`Error::Argument`] for a pattern that nothing matches, [`Error::Limit`] where the device has no room.
    pub fn tap(&mut self, pattern: &str) -> Result<()> {
        let mut taps = self.taps.clone();
        taps.add(self.mode.model.config(), pattern)?;
        *self = SequenceLogits::new(&self.mode.model, self.mode.context, self.mode.tokens, taps)?;
        Ok(())
    }

    /// What is tapped.
    pub fn taps(&self) -> &Taps {
        &self.taps
    }

    /// The plan of a pass, up to every token's last state.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the sequences and gives the logits [V] of chosen tokens, counted over all sequences; None: of all.
    /// `each(token, logits)` is called in the order of `tokens`. The result is what the taps gave, in the order of a pass:
    /// [T, C] of all tokens, and the logits of the chosen ones.
    ///
    /// # Errors
    /// [`Error::Argument`] for sequences that do not fit, are empty or hold unknown ids, or a token that is not there.
    pub async fn run(
        &self,
        sequences: &[&[u32]],
        tokens: Option<&[u32]>,
        mut each: impl FnMut(u32, &[f32]),
    ) -> Result<Vec<Tapped>> {
        let (gpu, a) = (self.mode.model.gpu(), &self.mode.activations);
        let count = self.mode.send(sequences)?;
        let all: Vec<u32> = (0..count).collect();
        let tokens = tokens.unwrap_or(&all);
        if let Some(token) = tokens.iter().find(|&&token| token >= count) {
            let (what, expected) = ("token whose logits are wanted".into(), format!("below the batch's {count}"));
            return Err(Error::Argument { what, expected, got: token.to_string() });
        }
        run(gpu, &self.plan, count);
        let mut tapped = match &self.readout {
            Some(readout) => readout.read(gpu, count, true).await?,
            None => Vec::new(),
        };
        let stride = a.last.stride() as u64 * 4;
        for chunk in tokens.chunks(LOGITS_CHUNK as usize) {
            let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
            for (i, &token) in chunk.iter().enumerate() {
                let (from, to) = (token as u64 * stride, i as u64 * stride);
                encoder.copy_buffer_to_buffer(&a.last.buffer, from, &self.chosen.buffer, to, stride);
            }
            self.head.record(&mut encoder, Frame { position: 0, tokens: chunk.len() as u32 });
            gpu.queue().submit([encoder.finish()]);
            let logits = a.logits.read(gpu, chunk.len() as u32).await?;
            for (&token, row) in chunk.iter().zip(logits.chunks(a.logits.cols as usize)) {
                each(token, row);
            }
            if let Some(readout) = &self.logits_readout {
                extend(&mut tapped, readout.read(gpu, chunk.len() as u32, true).await?);
            }
        }
        gpu.check()?;
        Ok(tapped)
    }
}

/// Activations of whole sequences. With `kept` every block has its own of all that the backward pass will ask for; without,
/// its own of what goes in alone.
fn activations(model: &Model, tokens: u32, kept: bool, dropout: f32, logits: Tensor) -> Result<Activations> {
    let (gpu, config, adapters) = (model.gpu(), model.config(), model.adapters());
    let c = config.embedding_length;
    let tensor = |label: &str, cols: u32| Tensor::new(gpu, label, tokens, cols);
    let operand = |label: &str, cols: u32| tensor(label, cols).map(Operand::from);
    let mut x = tensor("x", c)?;
    let adapted = |b: usize| adapters.map_or(&[][..], |adapters| &adapters.blocks[b]);
    let mut block: Vec<BlockActivations> = Vec::new();
    for (b, w) in model.weights().blocks.iter().enumerate() {
        let (q, kv, f) = (config.q_length(b), config.kv_length(b), config.feed_forward[b]);
        let out = tensor("x", c)?;
        let normed = w.attn_q_norm.is_some() || w.attn_k_norm.is_some();
        let same = |other: &&BlockActivations| {
            (other.attn.floats.cols, other.qkv.cols, other.swiglu.floats.cols) == (q, q + 2 * kv, f)
        };
        let other = block.iter().find(same).cloned();
        let plain = |(_, w): &(&BlockActivations, &BlockWeights)| w.attn_q_norm.is_none() && w.attn_k_norm.is_none();
        let unnormed = block.iter().zip(&model.weights().blocks).filter(plain).map(|(other, _)| other).find(same);
        let as_low = |other: &BlockActivations| {
            other.low.len() == adapted(b).len() && other.low.iter().zip(adapted(b)).all(|(low, w)| low.cols == w.a.rows)
        };
        let shared = other.filter(|other| !kept && as_low(other));
        block.push(match shared {
            Some(shared) => BlockActivations { x: x.clone(), out: out.clone(), ..shared },
            None => {
                let low = adapters.map_or(Ok(Vec::new()), |adapters| adapters.low(gpu, b, tokens))?;
                let dropped = adapted(b).iter().filter(|_| dropout > 0.0).map(|w| tensor("dropped", w.a.cols));
                BlockActivations {
                    x: x.clone(),
                    attn_norm: operand("attn_norm", c)?,
                    // only the norms' backward pass asks for it
                    qkv: match unnormed.filter(|_| !normed) {
                        Some(other) => other.qkv.clone(),
                        None => tensor("qkv", q + 2 * kv)?,
                    },
                    q: tensor("turned", q + 2 * kv)?,
                    attn: operand("attn", q)?,
                    attn_out: None,
                    mid: tensor("mid", c)?,
                    ffn_norm: operand("ffn_norm", c)?,
                    gate_up: tensor("gate_up", 2 * f)?,
                    keeps_gate_up: true,
                    swiglu: operand("swiglu", f)?,
                    ffn_out: None,
                    out: out.clone(),
                    splits: None,
                    sequence: Some(SequenceActivations {
                        inverses: tensor("inverses", (q + kv) / config.head_size)?,
                        log_sums: gpu.buffer("log_sums", tokens as u64 * (q / config.head_size) as u64 * 4)?,
                    }),
                    low,
                    dropped: dropped.collect::<Result<_>>()?,
                }
            }
        });
        x = out;
    }
    let seed = gpu.buffer("dropout seed", 4)?;
    Ok(Activations {
        ids: gpu.buffer("ids", tokens as u64 * 4)?,
        donor: model.weights().projection.as_ref().map(|p| tensor("donor", p.cols)).transpose()?,
        x,
        normed: operand("normed", c)?,
        squares: Squares::new(gpu, c)?,
        single: false,
        block,
        last: tensor("last", c)?,
        logits,
        dropout: (dropout > 0.0).then_some(Dropout { probability: dropout, seed }),
    })
}
