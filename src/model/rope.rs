//! Rotary position embedding: which numbers of a head form a pair, and how fast each pair turns.

use super::config::Keys;
use crate::error::{Error, Result};
use std::f64::consts::PI;

/// Which two numbers of a head turn together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// (0, 1), (2, 3), ..: `llama` files, whose Q and K rows the converters permute for this.
    Neighbours,
    /// (0, dims/2), (1, dims/2 + 1), ..: the Qwen family.
    Halves,
}

/// How the trained context was stretched. Llama 3's way is none of these: it is the tensor `rope_freqs.weight`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum RopeScaling {
    None,
    /// Positions are divided by the factor.
    Linear {
        factor: f32,
    },
    /// Slow pairs are divided by the factor, fast ones are left alone, those between are mixed.
    /// <https://arxiv.org/abs/2309.00071>
    Yarn {
        factor: f32,
        /// The context before stretching.
        original_context: u32,
        /// Pairs that turn more often than this in the original context are fast.
        beta_fast: f32,
        /// Pairs that turn less often than this are slow.
        beta_slow: f32,
        /// The share of the fast pairs' own speed: 1 in the paper, 0 is linear scaling.
        ext_factor: f32,
    },
}

/// RoPE as the metadata describe it.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeConfig {
    /// How many numbers of each head turn: even, at most the head size.
    pub dims: u32,
    pub base: f32,
    pub pairing: Pairing,
    pub scaling: RopeScaling,
    /// Multiplies sine and cosine, with YaRN and without.
    pub attn_factor: f32,
}

impl RopeConfig {
    pub(super) fn from_keys(keys: &Keys, pairing: Pairing, head_size: u32, context: u32) -> Result<RopeConfig> {
        let dims = keys.optional_number("rope.dimension_count", 0..=u32::MAX)?.unwrap_or(head_size);
        if dims < 2 || dims % 2 != 0 || dims > head_size {
            let expected = format!("an even number from 2 to the head size {head_size}");
            return Err(keys.bad("rope.dimension_count", expected, dims));
        }
        Ok(RopeConfig {
            dims,
            base: keys.float("rope.freq_base", 1.0001..=1e15)?.unwrap_or(10000.0),
            pairing,
            scaling: RopeScaling::from_keys(keys, context)?,
            attn_factor: keys.float("rope.scaling.attn_factor", 1e-6..=1e6)?.unwrap_or(1.0),
        })
    }

    /// What the frequency of a pair is multiplied with.
    fn scale_of_pair(&self, i: usize) -> f64 {
        match self.scaling {
            RopeScaling::None => 1.0,
            RopeScaling::Linear { factor } => 1.0 / factor as f64,
            RopeScaling::Yarn { factor, original_context, beta_fast, beta_slow, ext_factor } => {
                // The pair that turns `turns` times in the original context: base^(-2 pair/dims) * context = 2 pi turns.
                let dims = self.dims as f64;
                let pair_of = |turns: f32| {
                    let radians = 2.0 * PI * turns as f64;
                    dims * (original_context as f64 / radians).ln() / (2.0 * (self.base as f64).ln())
                };
                let first_mixed = pair_of(beta_fast).floor().max(0.0);
                let first_slow = pair_of(beta_slow).ceil().min(dims - 1.0);
                let slowness = ((i as f64 - first_mixed) / (first_slow - first_mixed).max(0.001)).clamp(0.0, 1.0);
                let own_share = (1.0 - slowness) * ext_factor as f64;
                (1.0 - own_share) / factor as f64 + own_share
            }
        }
    }

    /// YaRN sharpens attention as the context grows, by 1 + 0.1 ln(factor).
    fn magnitude(&self) -> f32 {
        match self.scaling {
            RopeScaling::Yarn { factor, ext_factor, .. } if ext_factor > 0.0 && factor > 1.0 => {
                self.attn_factor * (1.0 + 0.1 * factor.ln())
            }
            _ => self.attn_factor,
        }
    }
}

impl RopeScaling {
    fn from_keys(keys: &Keys, context: u32) -> Result<RopeScaling> {
        let factor = match keys.float("rope.scaling.factor", 0.0..=1e6)? {
            None => keys.float("rope.scale_linear", 0.0..=1e6)?, // the key's old name
            factor => factor,
        };
        let factor = factor.filter(|&factor| factor != 0.0).unwrap_or(1.0); // some files write 0 for "not scaled"
        match keys.gguf.str(&keys.full("rope.scaling.type"))? {
            Some("none") => Ok(RopeScaling::None),
            None | Some("linear") if factor == 1.0 => Ok(RopeScaling::None),
            None | Some("linear") => Ok(RopeScaling::Linear { factor }),
            Some("yarn") => Ok(RopeScaling::Yarn {
                factor,
                original_context: keys
                    .optional_number("rope.scaling.original_context_length", 0..=u32::MAX)?
                    .filter(|&length| length > 0)
                    .unwrap_or(context),
                beta_fast: keys.float("rope.scaling.yarn_beta_fast", 1e-3..=1e6)?.unwrap_or(32.0),
                beta_slow: keys.float("rope.scaling.yarn_beta_slow", 1e-3..=1e6)?.unwrap_or(1.0),
                // Negative means "the usual one", as it does on the command line of other engines.
                ext_factor: keys
                    .float("rope.scaling.yarn_ext_factor", -1.0..=1.0)?
                    .filter(|&x| x >= 0.0)
                    .unwrap_or(1.0),
            }),
            Some(other) => {
                let expected = "a known rope scaling type: none, linear or yarn (that of Llama 3 is no type but the tensor rope_freqs.weight)";
                Err(keys.bad("rope.scaling.type", expected, format!("{other:?}")))
            }
        }
    }
}

/// All that the rope op needs besides positions.
#[derive(Debug, Clone, PartialEq)]
pub struct Rope {
    /// How many numbers of each head turn; the rest pass unchanged. Even, at most the head size.
    pub dims: usize,
    /// Radians per position for each pair, `[dims/2]`; scaling and frequency factors are already in it.
    pub inv_freq: Vec<f32>,
    /// Multiplies sine and cosine; 1 unless YaRN or an attention factor asks for more.
    pub magnitude: f32,
    pub pairing: Pairing,
}

impl Rope {
    /// `factors` is the tensor `rope_freqs.weight`, `[dims/2]`: divisors of the frequencies.
    pub fn new(config: &RopeConfig, factors: Option<&[f32]>) -> Result<Rope> {
        let pairs = config.dims as usize / 2;
        if let Some(factors) = factors {
            check_factors(factors, pairs)?;
        }
        let base = config.base as f64;
        let inv_freq = (0..pairs).map(|i| {
            let plain =
                base.powf(-2.0 * i as f64 / config.dims as f64) / factors.map_or(1.0, |factors| factors[i] as f64);
            (plain * config.scale_of_pair(i)) as f32
        });
        Ok(Rope {
            dims: config.dims as usize,
            inv_freq: inv_freq.collect(),
            magnitude: config.magnitude(),
            pairing: config.pairing,
        })
    }

    /// The places of pair `i` inside a head.
    pub fn pair(&self, i: usize) -> (usize, usize) {
        match self.pairing {
            Pairing::Neighbours => (2 * i, 2 * i + 1),
            Pairing::Halves => (i, i + self.dims / 2),
        }
    }
}

fn check_factors(factors: &[f32], pairs: usize) -> Result<()> {
    let bad = |expected: String, got: String| Err(Error::Tensor { name: "rope_freqs.weight".into(), expected, got });
    if factors.len() != pairs {
        return bad(format!("{pairs} numbers, one for each pair"), factors.len().to_string());
    }
    match factors.iter().find(|factor| !(factor.is_finite() && **factor > 0.0)) {
        Some(factor) => bad("finite numbers above 0, which divide frequencies".into(), factor.to_string()),
        None => Ok(()),
    }
}
