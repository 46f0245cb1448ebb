//! Generation: tokens pulled from a session, one at a time. The caller owns the loop; dropping the generation stops it.
//! Where tokens are chosen on the GPU ([`Sampling::on_gpu`]) it works on the next one while the caller holds this one.

use crate::error::Result;
use crate::sampling::{Sampler, Sampling};
use crate::session::{DEPTH, Session};

#[derive(Debug, Clone, Default)]
pub struct GenerateOptions {
    pub sampling: Sampling,
    /// The most tokens to give; None: as many as the context holds.
    pub max_tokens: Option<u32>,
    /// Tokens that end the answer (a tokenizer's `end_ids`); they are not given.
    pub end_ids: Vec<u32>,
}

/// Why no more tokens come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// The model chose this end token.
    End(u32),
    /// `max_tokens` were given.
    Length,
    /// The session's context is full.
    Context,
}

/// Tokens after the ones in the session. A stream: [`Generation::next_token`], or on native platforms an iterator.
pub struct Generation<'a> {
    session: &'a mut Session,
    sampler: Sampler,
    end_ids: Vec<u32>,
    left: Option<u32>,
    /// The token given last, which is not in the session yet.
    pending: Option<u32>,
    /// Whether the session chooses tokens for us.
    chained: bool,
    stop: Option<Stop>,
}

impl Session {
    /// Continues after the tokens appended so far.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for sampling numbers out of range.
    pub fn generate(&mut self, options: GenerateOptions) -> Result<Generation<'_>> {
        let sampler = Sampler::new(options.sampling)?;
        let GenerateOptions { max_tokens: left, end_ids, .. } = options;
        Ok(Generation { session: self, sampler, end_ids, left, pending: None, chained: false, stop: None })
    }
}

impl Generation<'_> {
    /// The next token; None when there is a reason to stop, which [`Generation::stop`] tells.
    ///
    /// # Errors
    /// [`crate::Error::NotFinite`] if the weights are broken, or whatever the GPU reports.
    pub async fn next_token(&mut self) -> Result<Option<u32>> {
        if self.stop.is_none() && self.left == Some(0) {
            self.stop = Some(Stop::Length);
        }
        if self.stop.is_none() && self.pending.is_some() && self.session.position() == self.session.context() {
            self.stop = Some(Stop::Context);
        }
        if self.stop.is_some() {
            return Ok(None);
        }
        let id = if self.sampler.sampling().on_gpu() {
            self.choose_ahead().await.inspect_err(|_| self.chained = false)?
        } else {
            self.choose_from_logits().await?
        };
        if self.end_ids.contains(&id) {
            self.stop = Some(Stop::End(id));
            return Ok(None);
        }
        self.left = self.left.map(|left| left - 1);
        self.pending = Some(id);
        Ok(Some(id))
    }

    /// Takes the oldest choice on the GPU, after submitting the next as far as it can be wanted. So the pass over a
    /// token that is given is under way, unless it is the last that `max_tokens` or the context allows.
    async fn choose_ahead(&mut self) -> Result<u32> {
        if let Some(id) = self.pending.take() {
            self.session.accept(id);
        }
        if !self.chained {
            self.session.begin_chain(&self.sampler)?;
            self.chained = true;
        }
        let room = self.session.context() - self.session.position() + 1; // the last token needs no position
        let wanted = self.left.map_or(room, |left| left.min(room)) as usize;
        while self.session.choices_under_way() < wanted.min(DEPTH) {
            self.session.submit_choice(self.sampler.random())?;
        }
        let id = self.session.chosen().await?;
        self.sampler.note(id);
        Ok(id)
    }

    async fn choose_from_logits(&mut self) -> Result<u32> {
        if let Some(id) = self.pending.take() {
            self.session.append(&[id]).await?;
        }
        let mut logits = self.session.logits().await?;
        self.sampler.pick(&mut logits, self.session.tokens())
    }

    /// Why no more tokens come; None while they do.
    pub fn stop(&self) -> Option<Stop> {
        self.stop
    }

    /// The seed in use: with it the same answer comes again.
    pub fn seed(&self) -> u64 {
        self.sampler.seed()
    }
}

#[cfg(not(target_arch = "wasm32"))]
impl Iterator for Generation<'_> {
    type Item = Result<u32>;
    fn next(&mut self) -> Option<Result<u32>> {
        crate::block_on(self.next_token()).transpose()
    }
}
