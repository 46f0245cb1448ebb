//! LoRA adapters (<https://arxiv.org/abs/2106.09685>): to chosen matrices W a product of two narrow ones is added,
//! W + scale B A. The base stays as it is; B A is never multiplied out.

use super::config::Config;
use super::weights::Weights;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::kernels::Columns;
use crate::tensor::Tensor;
use crate::weight::Weight;

/// A matrix of a block that can have an adapter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Target {
    Q,
    K,
    V,
    Output,
    Gate,
    Up,
    Down,
}

impl Target {
    pub const ALL: [Target; 7] =
        [Target::Q, Target::K, Target::V, Target::Output, Target::Gate, Target::Up, Target::Down];

    /// GGUF's name, without the block.
    pub fn name(self) -> &'static str {
        match self {
            Target::Q => "attn_q",
            Target::K => "attn_k",
            Target::V => "attn_v",
            Target::Output => "attn_output",
            Target::Gate => "ffn_gate",
            Target::Up => "ffn_up",
            Target::Down => "ffn_down",
        }
    }

    /// "q", "attn_q" or "q_proj".
    pub fn from_name(name: &str) -> Option<Target> {
        let short = |target: Target| target.name().trim_start_matches("attn_").trim_start_matches("ffn_");
        let name = name.strip_suffix("_proj").unwrap_or(name);
        let name = if name == "o" { "output" } else { name };
        Target::ALL.into_iter().find(|&target| name == target.name() || name == short(target))
    }

    /// (rows, row length) of its matrix in a block.
    pub fn shape(self, config: &Config, block: usize) -> (u32, u32) {
        let (c, q, kv) = (config.embedding_length, config.q_length(block), config.kv_length(block));
        let f = config.feed_forward[block];
        match self {
            Target::Q => (q, c),
            Target::K | Target::V => (kv, c),
            Target::Output => (c, q),
            Target::Gate | Target::Up => (f, c),
            Target::Down => (c, f),
        }
    }

    /// Where its results lie among those of the fused matrix that holds it.
    pub fn columns(self, config: &Config, block: usize, alternating: bool) -> Columns {
        let (count, _) = self.shape(config, block);
        let (q, kv) = (config.q_length(block), config.kv_length(block));
        let (first, step) = match self {
            Target::Q | Target::Output | Target::Down => (0, 1),
            Target::K => (q, 1),
            Target::V => (q + kv, 1),
            Target::Gate => (0, if alternating { 2 } else { 1 }),
            Target::Up if alternating => (1, 2),
            Target::Up => (count, 1),
        };
        Columns { first, step, count }
    }
}

/// What is added to one matrix [N, K].
pub struct Adapter {
    pub target: Target,
    pub a: Weight, // [rank, K]
    pub b: Weight, // [N, rank]
    /// What B A is multiplied with.
    pub scale: f32,
    /// Of the fused matrix's results, those that it adds to.
    pub columns: Columns,
}

/// The adapters of a model.
pub struct Adapters {
    pub blocks: Vec<Vec<Adapter>>,
}

/// The two matrices of an adapter in memory, and their scale.
pub struct Pair<'a> {
    pub a: &'a [f32], // [rank, K]
    pub b: &'a [f32], // [N, rank]
    pub rank: u32,
    pub scale: f32,
}

impl Adapters {
    /// `pair(block, target)` gives the matrices of each, or None where there is no adapter; `name` is as in a GGUF file.
    pub fn new<'a>(
        gpu: &Gpu,
        config: &Config,
        weights: &Weights,
        mut pair: impl FnMut(usize, Target) -> Result<Option<Pair<'a>>>,
    ) -> Result<Adapters> {
        let mut blocks = Vec::new();
        for (b, block) in weights.blocks.iter().enumerate() {
            let mut adapters = Vec::new();
            for target in Target::ALL {
                let Some(Pair { a, b: up, rank, scale }) = pair(b, target)? else { continue };
                let (_, k) = target.shape(config, b);
                let name = format!("blk.{b}.{}.weight", target.name());
                let a = Weight::master(gpu, &format!("{name}.lora_a"), k, a)?;
                let up = Weight::master(gpu, &format!("{name}.lora_b"), rank, up)?;
                let columns = target.columns(config, b, block.ffn_gate_up.alternating);
                adapters.push(Adapter { target, a, b: up, scale, columns });
            }
            blocks.push(adapters);
        }
        Ok(Adapters { blocks })
    }

    /// Reads a GGUF adapter as llama.cpp has them: `NAME.lora_a` [rank, K] and `NAME.lora_b` [N, rank] for each matrix, scale
    /// `adapter.lora.alpha` / rank.
    ///
    /// # Errors
    /// What is wrong with the file: no adapter, of another architecture, a matrix without its other half, a shape that is
    /// not the model's.
    pub fn from_gguf(gpu: &Gpu, config: &Config, weights: &Weights, gguf: &Gguf) -> Result<Adapters> {
        let kind = gguf.str("general.type")?.unwrap_or("none");
        if kind != "adapter" {
            let expected = "adapter: a file that changes another model".into();
            return Err(Error::Key { key: "general.type".into(), expected, got: kind.into() });
        }
        let architecture = gguf.str("general.architecture")?.unwrap_or("none");
        if architecture != config.architecture.name() {
            let expected = format!("{}, as the model is", config.architecture.name());
            return Err(Error::Key { key: "general.architecture".into(), expected, got: architecture.into() });
        }
        let alpha = gguf.f32("adapter.lora.alpha")?;
        let mut known = 0;
        let mut all: std::collections::HashMap<(usize, Target), [Vec<f32>; 2]> = Default::default();
        for block in 0..weights.blocks.len() {
            for target in Target::ALL {
                let name = format!("blk.{block}.{}.weight", target.name());
                let [a, b] = ["lora_a", "lora_b"].map(|half| gguf.tensor(&format!("{name}.{half}")));
                let (a, b) = match (a, b) {
                    (None, None) => continue,
                    (Some(a), Some(b)) => (a, b),
                    (a, _) => {
                        let missing = if a.is_some() { "lora_b" } else { "lora_a" };
                        let hint = "an adapter has both; the file is incomplete".into();
                        return Err(Error::MissingTensor { name: format!("{name}.{missing}"), hint });
                    }
                };
                let (n, k) = target.shape(config, block);
                let rank = a.rows();
                if rank == 0 {
                    let (expected, got) = ("a rank of 1 or more".into(), "0".into());
                    return Err(Error::Tensor { name: a.name.clone(), expected, got });
                }
                for (info, shape) in [(a, [k as u64, rank]), (b, [rank, n as u64])] {
                    if info.shape != shape && !(rank == 1 && info.count() == shape.iter().product::<u64>()) {
                        let expected = format!("shape {}, as the model has it", crate::gguf::dims(&shape));
                        let got = format!("shape {}", crate::gguf::dims(&info.shape));
                        return Err(Error::Tensor { name: info.name.clone(), expected, got });
                    }
                }
                known += 2;
                all.insert((block, target), [gguf.floats(a)?, gguf.floats(b)?]);
            }
        }
        if let Some(other) = gguf.tensors().iter().find(|_| gguf.tensors().len() != known) {
            let unknown = |info: &&crate::gguf::TensorInfo| {
                let base = info.name.trim_end_matches(".lora_a").trim_end_matches(".lora_b");
                let parts: Vec<&str> = base.split('.').collect();
                !matches!(parts[..], ["blk", block, name, "weight"] if Target::from_name(name).is_some()
                    && block.parse::<usize>().is_ok_and(|block| block < weights.blocks.len()))
            };
            let name = gguf.tensors().iter().find(unknown).unwrap_or(other).name.clone();
            let what = format!("an adapter of {name}");
            let hint = "Adapters here change the matrices of attention and feed-forward of the model's blocks".into();
            return Err(Error::Unsupported { what, hint });
        }
        Adapters::new(gpu, config, weights, |block, target| {
            Ok(all.get(&(block, target)).map(|[a, b]| {
                let rank = a.len() as u32 / target.shape(config, block).1;
                let scale = alpha.filter(|&alpha| alpha != 0.0).map_or(1.0, |alpha| alpha / rank as f32);
                Pair { a, b, rank, scale }
            }))
        })
    }

    /// Whether a block's gate or up has one: they must then be there before SwiGLU.
    pub fn reach_gate_up(&self, block: usize) -> bool {
        self.blocks[block].iter().any(|adapter| matches!(adapter.target, Target::Gate | Target::Up))
    }

    /// Room for the products A x of one block, in its adapters' order: [T, rank] each.
    pub fn low(&self, gpu: &Gpu, block: usize, tokens: u32) -> Result<Vec<Tensor>> {
        self.blocks[block].iter().map(|adapter| Tensor::new(gpu, "low", tokens, adapter.a.rows)).collect()
    }
}
