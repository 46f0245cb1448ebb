//! A chain of tokens chosen on the GPU: each choice goes straight into the next pass, which is submitted before its id
//! has come back. The session's tokens are those that were accepted; passes ahead of them leave nothing behind but keys
//! and values that later passes overwrite.

use super::{Last, Session, Stage};
use crate::error::{Error, Result};
use crate::gpu::{Gpu, ReadBacks};
use crate::kernels::sample::{Chosen, Mark, Sample, Settings, sample};
use crate::model::Model;
use crate::plan::{Frame, Plan, PlanBuilder};
use crate::sampling::{Sampler, Sampling, all_barred};

/// Choices under way at once: while the caller holds one token, the GPU works on the next. More would only waste more
/// passes where an answer ends.
pub(crate) const DEPTH: usize = 2;

/// The choice of tokens on the GPU, for the logits of either stage.
pub(super) struct Chain {
    pub decode: Plan,
    pub prefill: Plan,
    sample: Sample,
    /// Of every choice; only `random` is each one's own.
    settings: Settings,
    under_way: ReadBacks,
    /// What [`Session::greedy`] comes back through.
    staging: wgpu::Buffer,
}

impl Chain {
    pub fn new(model: &Model, context: u32, decode: &Stage, prefill: &Stage) -> Result<Chain> {
        let (gpu, vocab) = (model.gpu(), model.config().vocab_size);
        let choice = Sample::new(gpu, vocab, context)?;
        let plan = |stage: &Stage| {
            let mut plan = PlanBuilder::new(gpu, 1);
            sample(&mut plan, "sample", &stage.activations.logits, &choice, &decode.activations.ids)?;
            plan.finish("sample")
        };
        Ok(Chain {
            decode: plan(decode)?,
            prefill: plan(prefill)?,
            settings: Settings::of(&Sampling::greedy(), vocab),
            under_way: ReadBacks::new(gpu, "chosen token", Chosen::BYTES, DEPTH),
            staging: gpu.staging("best token", Chosen::BYTES),
            sample: choice,
        })
    }

    /// Records the choice of the token at `position`.
    fn record(&self, gpu: &Gpu, encoder: &mut wgpu::CommandEncoder, last: Last, settings: Settings, position: u32) {
        gpu.queue().write_buffer(&self.sample.settings, 0, bytemuck::bytes_of(&settings));
        let plan = if last == Last::Decode { &self.decode } else { &self.prefill };
        plan.record(encoder, Frame { position, tokens: 1 });
    }
}

impl Session {
    /// The most likely next token, chosen on the GPU (the lower id among equals); only the id comes back.
    ///
    /// # Errors
    /// [`Error::NotFinite`] if a logit is NaN or infinite.
    pub async fn greedy(&self) -> Result<u32> {
        let last = self.with_logits()?;
        let (gpu, chain) = (self.model.gpu(), &self.chain);
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let settings = Settings::of(&Sampling::greedy(), self.model.config().vocab_size);
        chain.record(gpu, &mut encoder, last, settings, self.position());
        encoder.copy_buffer_to_buffer(&chain.sample.chosen.buffer, 0, &chain.staging, 0, Chosen::BYTES);
        gpu.queue().submit([encoder.finish()]);
        self.id_of(Chosen::read(&gpu.map(&chain.staging, Chosen::BYTES).await?))
    }

    /// Begins a chain after the tokens so far; one that was under way is forgotten.
    pub(crate) fn begin_chain(&mut self, sampler: &Sampler) -> Result<()> {
        let (queue, vocab) = (self.model.gpu().queue(), self.model.config().vocab_size);
        self.chain.under_way.clear();
        self.tapped.clear();
        self.chain.settings = Settings::of(sampler.sampling(), vocab);
        if self.chain.settings.penalized != 0 {
            let marks = Mark::all(sampler, &self.tokens, vocab)?;
            queue.write_buffer(&self.chain.sample.marks, 0, bytemuck::cast_slice(&marks));
            queue.write_buffer(&self.chain.sample.history, 0, bytemuck::cast_slice(&self.tokens));
        }
        Ok(())
    }

    /// Submits the choice of one more token, before it the pass over the one that the chain chose last.
    pub(crate) fn submit_choice(&mut self, random: f64) -> Result<()> {
        let under_way = self.chain.under_way.len() as u32;
        let position = self.position() + under_way;
        let gpu = self.model.gpu();
        let mut encoder = gpu.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let last = if under_way == 0 {
            let last = self.with_logits()?;
            self.ahead = 0;
            last
        } else {
            self.decode.plan.record(&mut encoder, Frame { position: position - 1, tokens: 1 });
            self.ahead += 1;
            Last::Decode
        };
        let settings = Settings { random: random as f32, ..self.chain.settings };
        self.chain.record(gpu, &mut encoder, last, settings, position);
        self.chain.under_way.submit(gpu, encoder, &self.chain.sample.chosen.buffer);
        Ok(())
    }

    /// Choices submitted whose ids have not been taken.
    pub(crate) fn choices_under_way(&self) -> usize {
        self.chain.under_way.len()
    }

    /// The id of the oldest choice under way.
    pub(crate) async fn chosen(&mut self) -> Result<u32> {
        let bytes = self.chain.under_way.take(self.model.gpu()).await?;
        self.id_of(Chosen::read(&bytes))
    }

    /// Makes the token that was taken last, over which a pass has been submitted, part of the sequence.
    pub(crate) fn accept(&mut self, id: u32) {
        self.tokens.push(id);
        self.ahead -= 1;
        self.last = Some(Last::Decode);
    }

    fn id_of(&self, chosen: Chosen) -> Result<u32> {
        match chosen {
            Chosen::Id(id) => Ok(id),
            Chosen::NotFinite { id, value } => Err(Error::NotFinite { position: self.position() - 1, id, value }),
            Chosen::AllBarred => Err(all_barred(self.model.config().vocab_size as usize)),
        }
    }
}
