//! State: what changes while a model runs. Activations of one pass, and the keys and values of all positions so far.

use super::adapters::Adapters;
use super::config::Config;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::kernels::KvFormat;
use crate::kernels::attention::Splits;
use crate::kernels::linear::Squares;
use crate::kernels::rope_kv::KvCache;
use crate::taps::{Site, Tap, Taps};
use crate::tensor::{Element, Tensor};
use crate::weight::Weight;
use std::sync::Arc;

/// The activations of a pass. T is the most tokens of one.
pub struct Activations {
    pub ids: wgpu::Buffer, // [T] u32
    /// With a projection: the donor's embeddings.
    pub donor: Option<Tensor>, // [T, donor's C]
    pub x: Tensor,         // [T, C] the residual stream after the last block
    pub normed: Operand,   // [T, C] that stream's norm in a pass of one token
    pub squares: Squares,  // of x, in a pass of one token
    /// A pass of one token, in which the steps that write the residual stream do the norms' work.
    pub single: bool,
    pub block: Vec<BlockActivations>,
    pub last: Tensor,   // [rows, C] x normed, for the logits
    pub logits: Tensor, // [rows, V]
    /// Of the adapters' inputs, while they learn.
    pub dropout: Option<Dropout>,
}

/// What one block leaves. For inference all blocks of equal width share one set, and the residual stream is one tensor;
/// training gives each block its own of what the backward pass will ask for, and a tap its own of what it reads.
#[derive(Clone)]
pub struct BlockActivations {
    pub x: Tensor,          // [T, C] the residual stream as it comes
    pub attn_norm: Operand, // [T, C]
    pub qkv: Tensor,        // [T, H + KV + KV, D]
    pub q: Tensor,          // [T, H, D] normed and turned; of sequences all of qkv
    pub attn: Operand,      // [T, H, D]
    /// [T, C] what attention adds to the stream, where that is wanted for itself.
    pub attn_out: Option<Tensor>,
    pub mid: Tensor,       // [T, C] the residual stream after attention
    pub ffn_norm: Operand, // [T, C]
    pub gate_up: Tensor,   // [T, 2, F] or [T, F, 2] where swiglu is a step of its own, else [1, 2F]
    /// Gate and up are wanted for themselves, not only their product.
    pub keeps_gate_up: bool,
    pub swiglu: Operand, // [T, F]
    /// [T, C] what the feed-forward adds to the stream, where that is wanted for itself.
    pub ffn_out: Option<Tensor>,
    pub out: Tensor, // [T, C] the residual stream as it goes
    /// With a cache.
    pub splits: Option<Arc<Splits>>,
    /// Without one.
    pub sequence: Option<SequenceActivations>,
    pub low: Vec<Tensor>,     // [T, rank] for each adapter of the block
    pub dropped: Vec<Tensor>, // [T, K] for each adapter of the block, with dropout
}

/// What attention over whole sequences leaves for its backward pass.
#[derive(Clone)]
pub struct SequenceActivations {
    pub inverses: Tensor,       // [T, H + KV] what the QK norms multiplied with
    pub log_sums: wgpu::Buffer, // [T, H] f32
}

/// Which token belongs to which sequence.
pub struct Sequences {
    pub positions: wgpu::Buffer, // [T] u32
    pub bounds: wgpu::Buffer,    // [T, 2] u32: first token of its sequence, first past it
}

/// Numbers dropped from the adapters' inputs.
pub struct Dropout {
    pub probability: f32,
    pub seed: wgpu::Buffer, // [1] u32, another for every pass
}

/// What a matrix is multiplied with: floats, or bytes where the device computes faster with them.
#[derive(Clone)]
pub struct Operand {
    pub floats: Tensor,
    pub bytes: Option<Tensor>,
}

impl From<Tensor> for Operand {
    fn from(floats: Tensor) -> Operand {
        Operand { floats, bytes: None }
    }
}

impl Operand {
    /// The form that suits the matrix.
    pub fn of(&self, w: &Weight) -> &Tensor {
        self.bytes_for(w).unwrap_or(&self.floats)
    }

    /// The bytes, if the matrix is to be multiplied with them.
    pub fn bytes_for(&self, w: &Weight) -> Option<&Tensor> {
        self.bytes.as_ref().filter(|_| w.is_quantized())
    }
}

impl Activations {
    /// Room for passes of `tokens` tokens over up to `context` positions; `logits` are of all of them or of the last.
    /// With `int8` matrices are multiplied with bytes.
    #[allow(clippy::too_many_arguments)]
    pub fn new(
        gpu: &Gpu,
        config: &Config,
        weights: &Weights,
        adapters: Option<&Adapters>,
        tokens: u32,
        context: u32,
        logits: Tensor,
        int8: bool,
    ) -> Result<Activations> {
        let c = config.embedding_length;
        let tensor = |label: &str, cols: u32| Tensor::new(gpu, label, tokens, cols);
        let operand = |label: &str, cols: u32| {
            let bytes = int8.then(|| Tensor::of(gpu, &format!("{label} in bytes"), tokens, cols, Element::Bytes));
            Ok::<_, Error>(Operand { floats: tensor(label, cols)?, bytes: bytes.transpose()? })
        };
        let (x, normed) = (tensor("x", c)?, operand("normed", c)?);
        let mut block: Vec<BlockActivations> = Vec::new();
        for (b, w) in weights.blocks.iter().enumerate() {
            let (q, kv, f) = (config.q_length(b), config.kv_length(b), config.feed_forward[b]);
            let keeps_gate_up = adapters.is_some_and(|adapters| adapters.reach_gate_up(b));
            let gate_up_rows = if w.ffn_gate_up.alternating && !keeps_gate_up { 1 } else { tokens };
            let same = |other: &&BlockActivations| {
                (other.q.cols, other.qkv.cols, other.swiglu.floats.cols) == (q, q + 2 * kv, f)
                    && (other.gate_up.rows, other.keeps_gate_up) == (gate_up_rows, keeps_gate_up)
            };
            let low = adapters.map_or(Ok(Vec::new()), |adapters| adapters.low(gpu, b, tokens))?;
            block.push(match block.iter().find(same).cloned() {
                Some(same) => BlockActivations { low, ..same },
                None => BlockActivations {
                    x: x.clone(),
                    attn_norm: normed.clone(),
                    qkv: tensor("qkv", q + 2 * kv)?,
                    q: tensor("q", q)?,
                    attn: operand("attn", q)?,
                    attn_out: None,
                    mid: x.clone(),
                    ffn_norm: normed.clone(),
                    gate_up: Tensor::new(gpu, "gate_up", gate_up_rows, 2 * f)?,
                    keeps_gate_up,
                    swiglu: operand("swiglu", f)?,
                    ffn_out: None,
                    out: x.clone(),
                    splits: Some(Arc::new(Splits::new(gpu, tokens, context, q / config.head_size, config.head_size)?)),
                    sequence: None,
                    low,
                    dropped: Vec::new(),
                },
            });
        }
        Ok(Activations {
            ids: gpu.buffer("ids", tokens as u64 * 4)?,
            donor: weights.projection.as_ref().map(|p| tensor("donor", p.cols)).transpose()?,
            x,
            normed,
            squares: Squares::new(gpu, c)?,
            single: tokens == 1,
            block,
            last: Tensor::new(gpu, "last", logits.rows, c)?,
            logits,
            dropout: None,
        })
    }

    /// Gives what is tapped tensors of their own, which no other step writes.
    pub(crate) fn tap(&mut self, gpu: &Gpu, taps: &Taps) -> Result<()> {
        if !taps.reach_blocks() {
            return Ok(());
        }
        self.single = false; // norms are steps, branches are not yet added
        let (rows, cols) = (self.x.rows, self.x.cols);
        let tensor = |label: &str| Tensor::new(gpu, label, rows, cols);
        if self.block.iter().any(|block| block.mid.buffer == block.x.buffer) {
            // a sum of two tensors goes into a third: the stream lies in x and here in turns
            let mid = tensor("mid")?;
            self.block.iter_mut().for_each(|block| block.mid = mid.clone());
        }
        for tap in taps.list() {
            let Tap::Block(b, site) = *tap else { continue };
            let own = tensor(&tap.name())?;
            let block = &mut self.block[b];
            match site {
                Site::AttnNorm => block.attn_norm = own.into(),
                Site::AttnOut => block.attn_out = Some(own),
                Site::FfnNorm => block.ffn_norm = own.into(),
                Site::FfnOut => block.ffn_out = Some(own),
                Site::ResidPost => {
                    block.out = own.clone();
                    match self.block.get_mut(b + 1) {
                        Some(next) => next.x = own,
                        None => self.x = own,
                    }
                }
            }
        }
        Ok(())
    }

    /// Where a tap finds its numbers after a pass; [T, C], of the logits [rows, V]. It must be among those given to
    /// [`Activations::tap`].
    pub(crate) fn tapped(&self, tap: Tap) -> &Tensor {
        let Tap::Block(b, site) = tap else { return &self.logits };
        let block = &self.block[b];
        let branch = match site {
            Site::AttnNorm => return &block.attn_norm.floats,
            Site::FfnNorm => return &block.ffn_norm.floats,
            Site::ResidPost => return &block.out,
            Site::AttnOut => &block.attn_out,
            Site::FfnOut => &block.ffn_out,
        };
        branch.as_ref().unwrap_or_else(|| unreachable!("the tap {} has a tensor", tap.name()))
    }
}

/// A cache for every block, `context` positions each.
pub fn kv_caches(gpu: &Gpu, config: &Config, context: u32, format: KvFormat) -> Result<Vec<KvCache>> {
    let cache = |b: usize| {
        let bytes = context as u64 * format.bytes(config.kv_length(b) as u64);
        let k = gpu.buffer(&format!("blk.{b} keys for a context of {context}"), bytes)?;
        let v = gpu.buffer(&format!("blk.{b} values for a context of {context}"), bytes)?;
        Ok(KvCache { k, v, format, context })
    };
    (0..config.block_count as usize).map(cache).collect()
}
