//! Weights: a model's tensors on the GPU, which do not change while it runs.

use super::config::Config;
use super::tensors::{Found, Tensors};
use crate::error::{Error, Result};
use crate::formats::Format;
use crate::gguf::{Gguf, TensorInfo};
use crate::gpu::Gpu;
use crate::kernels::swiglu::Lie;
use crate::weight::{Data, Source, Vector, Weight};
use std::collections::{HashMap, HashSet};

/// The name of [`Weights::projection`], among the file's own.
pub(crate) const PROJECTION: &str = "projection.weight";

/// Fields bear GGUF's names. Shapes are [rows, cols]; C channels, H heads, KV kv heads, D head size, F feed-forward,
/// V vocabulary.
pub struct Weights {
    pub token_embd: Weight, // [V, C]; with a projection [V, donor's C]
    /// Only while a warm-started model is trained: from a donor's embeddings to this model's channels.
    pub projection: Option<Weight>, // [C, donor's C]
    pub output_norm: Vector, // [C]
    pub output: Option<Weight>, // [V, C]; None: tied to token_embd
    pub blocks: Vec<BlockWeights>,
    /// Divisors of the RoPE frequencies, [D / 2] (Llama 3.1 and later).
    pub rope_freqs: Option<Vec<f32>>,
    /// The tensors that the file has: a fused bias is zero where one of its parts is absent.
    pub names: HashSet<String>,
}

pub struct BlockWeights {
    pub attn_norm: Vector,           // [C]
    pub attn_qkv: Affine,            // [(H + KV + KV) * D, C]: the file's attn_q, attn_k and attn_v
    pub attn_q_norm: Option<Vector>, // [D]
    pub attn_k_norm: Option<Vector>, // [D]
    pub attn_output: Affine,         // [C, H * D]
    pub ffn_norm: Vector,            // [C]
    pub ffn_gate_up: GateUp,         // [2 * F, C]: the file's ffn_gate and ffn_up
    pub ffn_down: Affine,            // [C, F]
}

/// Gate and up, multiplied with the same x.
pub struct GateUp {
    pub affine: Affine,
    /// Rows take turns (gate 0, up 0, ..), so that a lane has both. If not, all gates come before all ups: that is so
    /// where the file has them in different formats.
    pub alternating: bool,
}

impl GateUp {
    pub fn lie(&self) -> Lie {
        if self.alternating { Lie::Alternating } else { Lie::Stacked }
    }
}

/// A matrix, and a bias where the file has one.
pub struct Affine {
    pub weight: Weight,
    pub bias: Option<Vector>,
}

impl Weights {
    /// Sends every tensor up, one after another, in pieces; `progress(done, total)` counts bytes of the file. As `masters` they
    /// are decoded to f32, row by row ([`Weight::master`]), so that they can learn.
    pub async fn upload(
        gpu: &Gpu,
        gguf: &Gguf,
        config: &Config,
        tensors: Tensors<'_>,
        masters: bool,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Weights> {
        let total = tensors.found.iter().map(|found| found.info.size).sum();
        let tensors = tensors.found.into_iter().map(|found| (found.slot.name.clone(), found)).collect();
        let mut loader = Loader { gpu, gguf, tensors, done: 0, total, progress, masters };
        let names = loader.tensors.keys().cloned().collect();
        let token_embd = loader.matrix("token_embd.weight").await?;
        let mut blocks = Vec::new();
        for b in 0..config.block_count {
            let name = |what: &str| format!("blk.{b}.{what}");
            blocks.push(BlockWeights {
                attn_norm: loader.vector(&name("attn_norm.weight")).await?,
                attn_qkv: loader.stacked(&name("attn_qkv"), &["attn_q", "attn_k", "attn_v"].map(name)).await?,
                attn_q_norm: loader.optional(&name("attn_q_norm.weight")).await?,
                attn_k_norm: loader.optional(&name("attn_k_norm.weight")).await?,
                attn_output: loader.affine(&name("attn_output")).await?,
                ffn_norm: loader.vector(&name("ffn_norm.weight")).await?,
                ffn_gate_up: loader.gate_up(&name("ffn_gate_up"), ["ffn_gate", "ffn_up"].map(name)).await?,
                ffn_down: loader.affine(&name("ffn_down")).await?,
            });
        }
        let untied = loader.tensors.contains_key("output.weight");
        let output = if untied { Some(loader.matrix("output.weight").await?) } else { None };
        let rope_freqs = match loader.tensors.get("rope_freqs.weight") {
            Some(found) => Some(gguf.read_floats(found.info).await?),
            None => None,
        };
        Ok(Weights {
            token_embd,
            projection: None,
            output_norm: loader.vector("output_norm.weight").await?,
            output,
            blocks,
            names,
            rope_freqs,
        })
    }

    /// Masters whose embedding is that of a donor, as it lies in its file, through a projection
    /// [C, donor's C].
    pub async fn warm_start(
        gpu: &Gpu,
        gguf: &Gguf,
        config: &Config,
        tensors: Tensors<'_>,
        donor: &Gguf,
        projection: &[f32],
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<Weights> {
        let donor_config = Config::from_gguf(donor)?;
        if donor_config.vocab_size != config.vocab_size || !tensors.found.iter().any(|f| f.slot.name == "output.weight")
        {
            return Err(Error::Argument {
                what: "donor".into(),
                expected: format!(
                    "a vocabulary of {} tokens, and a new model with its own output head",
                    config.vocab_size
                ),
                got: format!("{} tokens", donor_config.vocab_size),
            });
        }
        let mut weights = Weights::upload(gpu, gguf, config, tensors, true, progress).await?;
        let mut found = Tensors::find(donor, &donor_config)?.found.into_iter();
        let found = found.find(|found| found.slot.name == "token_embd.weight");
        let found = found.ok_or_else(|| Error::MissingTensor {
            name: "token_embd.weight".into(),
            hint: "the donor has no embeddings".into(),
        })?;
        let cols = donor_config.embedding_length;
        let source = Source { format: found.format, rows: config.vocab_size, data: Data::In(donor, found.info) };
        weights.token_embd = Weight::stacked(gpu, "token_embd.weight", cols, &[source]).await?;
        weights.projection = Some(Weight::master(gpu, PROJECTION, cols, projection)?);
        Ok(weights)
    }

    /// The output head: a matrix of its own, or the embedding.
    pub fn head(&self) -> &Weight {
        self.output.as_ref().unwrap_or(&self.token_embd)
    }

    /// Bytes that the matrices take on the GPU.
    pub fn bytes(&self) -> u64 {
        let blocks = self
            .blocks
            .iter()
            .flat_map(|b| [&b.attn_qkv, &b.attn_output, &b.ffn_gate_up.affine, &b.ffn_down].map(|a| a.weight.bytes()));
        self.token_embd.bytes() + self.output.as_ref().map_or(0, Weight::bytes) + blocks.sum::<u64>()
    }
}

struct Loader<'a> {
    gpu: &'a Gpu,
    gguf: &'a Gguf,
    tensors: HashMap<String, Found<'a>>, // by name; shapes and formats are checked
    done: u64,
    total: u64,
    progress: &'a mut dyn FnMut(u64, u64),
    masters: bool,
}

/// A matrix on its way up.
struct Matrix<'a> {
    format: Format,
    info: &'a TensorInfo,
    rows: u32,
    /// Decoded, for masters; else empty.
    floats: Vec<f32>,
}

impl Matrix<'_> {
    fn source<'a>(&'a self, gguf: &'a Gguf) -> Source<'a> {
        let (format, data) = match self.floats.is_empty() {
            true => (self.format, Data::In(gguf, self.info)),
            false => (Format::F32, Data::Here(bytemuck::cast_slice(&self.floats))),
        };
        Source { format, rows: self.rows, data }
    }
}

impl<'a> Loader<'a> {
    fn take(&mut self, name: &str) -> Result<Found<'a>> {
        let missing = || Error::MissingTensor { name: name.into(), hint: "the model has no such tensor".into() };
        let found = self.tensors.remove(name).ok_or_else(missing)?;
        self.done += found.info.size;
        (self.progress)(self.done, self.total);
        Ok(found)
    }

    async fn data(&mut self, name: &str) -> Result<(Matrix<'a>, u32)> {
        let found = self.take(name)?;
        let (rows, cols) = (found.slot.shape[1] as u32, found.slot.shape[0] as u32);
        let (format, info) = (found.format, found.info);
        let floats = if self.masters { self.floats(found).await? } else { Vec::new() };
        Ok((Matrix { format, info, rows, floats }, cols))
    }

    async fn weight(&self, name: &str, cols: u32, sources: &[Source<'_>]) -> Result<Weight> {
        match self.masters {
            true => Weight::masters(self.gpu, name, cols, sources).await,
            false => Weight::stacked(self.gpu, name, cols, sources).await,
        }
    }

    async fn matrix(&mut self, name: &str) -> Result<Weight> {
        let (matrix, cols) = self.data(name).await?;
        self.weight(name, cols, &[matrix.source(self.gguf)]).await
    }

    async fn vector(&mut self, name: &str) -> Result<Vector> {
        let found = self.take(name)?;
        Vector::upload(self.gpu, name, &self.floats(found).await?)
    }

    /// A tensor decoded; zeros on an outline, which nobody will read.
    async fn floats(&self, found: Found<'a>) -> Result<Vec<f32>> {
        match self.gpu.is_outline() {
            true => Ok(vec![0.0; found.info.count() as usize]),
            false => self.gguf.read_floats(found.info).await,
        }
    }

    async fn optional(&mut self, name: &str) -> Result<Option<Vector>> {
        Ok(match self.tensors.contains_key(name) {
            true => Some(self.vector(name).await?),
            false => None,
        })
    }

    async fn affine(&mut self, name: &str) -> Result<Affine> {
        let weight = self.matrix(&format!("{name}.weight")).await?;
        Ok(Affine { weight, bias: self.optional(&format!("{name}.bias")).await? })
    }

    /// The rows of several tensors, one tensor after another.
    async fn stacked(&mut self, name: &str, parts: &[String]) -> Result<Affine> {
        let (matrices, cols) = self.all_data(parts).await?;
        let sources: Vec<Source> = matrices.iter().map(|matrix| matrix.source(self.gguf)).collect();
        let biases = self.biases(parts, &sources).await?;
        let weight = self.weight(name, cols, &sources).await?;
        let bias = biases.map(|biases| Vector::upload(self.gpu, &format!("{name}.bias"), &biases.concat()));
        Ok(Affine { weight, bias: bias.transpose()? })
    }

    async fn gate_up(&mut self, name: &str, parts: [String; 2]) -> Result<GateUp> {
        let (matrices, cols) = self.all_data(&parts).await?;
        let sources: Vec<Source> = matrices.iter().map(|matrix| matrix.source(self.gguf)).collect();
        let biases = self.biases(&parts, &sources).await?;
        // masters lie one after the other: so does what belongs to each of them
        let alternating = sources[0].format == sources[1].format && !self.masters;
        let weight = match alternating {
            true => Weight::alternating(self.gpu, name, cols, [sources[0], sources[1]]).await?,
            false => self.weight(name, cols, &sources).await?,
        };
        let bias = biases.map(|biases| match alternating {
            true => biases[0].iter().zip(&biases[1]).flat_map(|(&gate, &up)| [gate, up]).collect(),
            false => biases.concat(),
        });
        let bias = bias.map(|bias: Vec<f32>| Vector::upload(self.gpu, &format!("{name}.bias"), &bias));
        Ok(GateUp { affine: Affine { weight, bias: bias.transpose()? }, alternating })
    }

    async fn all_data(&mut self, names: &[String]) -> Result<(Vec<Matrix<'a>>, u32)> {
        let (mut all, mut width) = (Vec::new(), 0);
        for name in names {
            let (matrix, cols) = self.data(&format!("{name}.weight")).await?;
            all.push(matrix);
            width = cols; // of one x
        }
        Ok((all, width))
    }

    /// The biases of some tensors, zeros for those that have none; None if none has one.
    async fn biases(&mut self, names: &[String], sources: &[Source<'_>]) -> Result<Option<Vec<Vec<f32>>>> {
        let names: Vec<String> = names.iter().map(|name| format!("{name}.bias")).collect();
        if !names.iter().any(|name| self.tensors.contains_key(name)) {
            return Ok(None);
        }
        let mut biases = Vec::new();
        for (name, source) in names.iter().zip(sources) {
            biases.push(match self.tensors.contains_key(name) {
                true => {
                    let found = self.take(name)?;
                    self.floats(found).await?
                }
                false => vec![0.0; source.rows as usize],
            });
        }
        Ok(Some(biases))
    }
}
