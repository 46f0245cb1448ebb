//! What a trainer is told.

use super::{AdamW, Schedule};
use crate::model::Target;

/// How a run learns.
#[derive(Debug, Clone)]
pub struct TrainOptions {
    /// Tokens of one sequence at most.
    pub context: u32,
    /// Tokens of one pass at most: of all sequences of a batch.
    pub tokens: u32,
    pub optimizer: Optimizer,
    pub schedule: Schedule,
    /// Longer gradients, all tensors together, are shortened to this.
    pub clip: Option<f64>,
    /// Keep only what goes into each block, and compute the rest of it again in the backward pass: much less memory, a third
    /// more time.
    pub recompute: bool,
    pub compute: Compute,
    pub seed: u64,
}

/// What matrices are multiplied in. Sums, weights, their gradients and moments are f32 always.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compute {
    #[default]
    F32,
    /// Halves, on matrix hardware that has them ([`Matrix`](crate::gpu::Matrix); Apple's multiplies f32); f32 where there is no
    /// such hardware. Gradients are scaled token by token, by powers of two, so that none of a token's is lost that its largest does
    /// not dwarf: there is no loss scale to choose.
    F16,
}

impl Default for TrainOptions {
    fn default() -> TrainOptions {
        TrainOptions {
            context: 512,
            tokens: 2048,
            optimizer: Optimizer::AdamW(AdamW::default()),
            schedule: Schedule::default(),
            clip: Some(1.0),
            recompute: false,
            compute: Compute::F32,
            seed: 0,
        }
    }
}

/// The rule by which gradients change weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Optimizer {
    AdamW(AdamW),
    /// w (1 - rate decay) - rate m, with m its old value times `momentum` plus the gradient.
    Sgd {
        momentum: f64,
        decay: f64,
    },
}

impl Optimizer {
    /// Numbers that are kept for each weight.
    pub fn moments(self) -> usize {
        match self {
            Optimizer::AdamW(_) => 2,
            Optimizer::Sgd { .. } => 1,
        }
    }
}

/// New adapters: the second matrix of each is zero, so they change nothing at first.
#[derive(Debug, Clone, PartialEq)]
pub struct LoraOptions {
    pub targets: Vec<Target>,
    pub rank: u32,
    pub alpha: f32,
    /// The product is multiplied with alpha / sqrt(rank) (rsLoRA, <https://arxiv.org/abs/2312.03732>) instead of alpha / rank.
    pub rank_stabilized: bool,
    /// Which share of the adapters' inputs is dropped at random in each pass.
    pub dropout: f32,
}

impl Default for LoraOptions {
    fn default() -> LoraOptions {
        LoraOptions { targets: vec![Target::Q, Target::V], rank: 16, alpha: 32.0, rank_stabilized: false, dropout: 0.0 }
    }
}

impl LoraOptions {
    /// What B A is multiplied with.
    pub fn scale(&self) -> f32 {
        let rank = self.rank as f32;
        self.alpha / if self.rank_stabilized { rank.sqrt() } else { rank }
    }
}
