//! Tiny models with random weights, written as GGUF: for every architecture and format, from a seed.

use super::Random;
use half::{bf16, f16};
use peregrine::Gguf;
use peregrine::formats::Format;
use peregrine::gguf::{Value, Writer};
use peregrine::model::Architecture;

/// What to build. Change fields at will: nothing needs to be consistent, tests of bad files build those with it too.
#[derive(Clone)]
pub struct TinyModel {
    pub architecture: Architecture,
    /// Of the matrices; norms and biases are F32.
    pub format: Format,
    pub seed: u64,
    pub blocks: u32,
    pub embedding: u32,
    pub heads: u32,
    pub kv_heads: u32,
    pub head_size: u32,
    pub feed_forward: u32,
    pub vocab: u32,
    pub context: u32,
    /// The embedding is the output head.
    pub tied: bool,
    /// Biases on Q, K and V.
    pub qkv_bias: bool,
    /// Biases on the output projection and the feed-forward.
    pub other_bias: bool,
    /// Q and K rows reordered, so that RoPE over neighbours does what RoPE over halves does with the plain rows.
    pub neighbours: bool,
    /// `rope_freqs.weight`.
    pub rope_freqs: Option<Vec<f32>>,
    /// Metadata that replaces or, with None, removes what is there; keys without the architecture's prefix.
    pub keys: Vec<(&'static str, Option<Value>)>,
}

/// A tensor to be written.
#[derive(Clone)]
pub struct TinyTensor {
    pub name: String,
    /// In GGUF's order: shape[0] is the length of a row.
    pub shape: Vec<u64>,
    pub format: Format,
    pub bytes: Vec<u8>,
}

impl TinyModel {
    /// Awkward sizes as far as the format's blocks allow; H * D is not C.
    pub fn new(architecture: Architecture, format: Format, seed: u64) -> TinyModel {
        let (embedding, heads, kv_heads, head_size, feed_forward) = match format.block_weights() {
            1 => (60, 6, 2, 12, 100),
            32 => (96, 6, 3, 32, 160),
            _ => (256, 8, 2, 64, 768),
        };
        TinyModel {
            architecture,
            format,
            seed,
            blocks: 2,
            embedding,
            heads,
            kv_heads,
            head_size,
            feed_forward,
            vocab: 203,
            context: 128,
            tied: true,
            qkv_bias: architecture == Architecture::Qwen2,
            other_bias: false,
            neighbours: false,
            rope_freqs: None,
            keys: Vec::new(),
        }
    }

    /// A vocabulary above 65,536, and as little else as there can be.
    pub fn of_a_large_vocabulary(seed: u64) -> TinyModel {
        TinyModel {
            blocks: 1,
            embedding: 8,
            heads: 2,
            kv_heads: 1,
            head_size: 4,
            feed_forward: 12,
            vocab: 70_001,
            ..TinyModel::new(Architecture::Llama, Format::F32, seed)
        }
    }

    pub fn with(mut self, key: &'static str, value: Value) -> TinyModel {
        self.keys.push((key, Some(value)));
        self
    }

    pub fn without(mut self, key: &'static str) -> TinyModel {
        self.keys.push((key, None));
        self
    }

    pub fn metadata(&self) -> Vec<(String, Value)> {
        let name = self.architecture.name();
        let mut metadata = vec![
            ("general.architecture".to_string(), Value::String(name.into())),
            ("general.name".to_string(), Value::String(format!("tiny random {name}").into())),
        ];
        let mut set = |key: &str, value: Option<Value>| {
            let key = if key.contains("general.") || key.contains("tokenizer.") {
                key.into()
            } else {
                format!("{name}.{key}")
            };
            metadata.retain(|(existing, _)| *existing != key);
            metadata.extend(value.map(|value| (key, value)));
        };
        set("block_count", Some(Value::U32(self.blocks)));
        set("context_length", Some(Value::U32(self.context)));
        set("embedding_length", Some(Value::U32(self.embedding)));
        set("feed_forward_length", Some(Value::U32(self.feed_forward)));
        set("attention.head_count", Some(Value::U32(self.heads)));
        set("attention.head_count_kv", Some(Value::U32(self.kv_heads)));
        set("attention.key_length", Some(Value::U32(self.head_size)));
        set("attention.value_length", Some(Value::U32(self.head_size)));
        set("attention.layer_norm_rms_epsilon", Some(Value::F32(1e-5)));
        set("rope.freq_base", Some(Value::F32(10000.0)));
        for (key, value) in &self.keys {
            set(key, value.clone());
        }
        metadata
    }

    pub fn tensors(&self) -> Vec<TinyTensor> {
        let mut random = Random::new(self.seed);
        let (c, d) = (self.embedding as u64, self.head_size as u64);
        let (q, kv) = (self.heads as u64 * d, self.kv_heads as u64 * d);
        let (f, v) = (self.feed_forward as u64, self.vocab as u64);

        let mut tensors = vec![self.matrix("token_embd", c, v, 1.0, &mut random)];
        tensors.extend(self.rope_freqs.as_ref().map(|factors| vector("rope_freqs.weight", factors)));
        for block in 0..self.blocks {
            let name = |name: &str| format!("blk.{block}.{name}");
            tensors.push(self.gain(&name("attn_norm"), c, &mut random));
            tensors.push(self.gain(&name("ffn_norm"), c, &mut random));
            if self.architecture == Architecture::Qwen3 {
                tensors.push(self.gain(&name("attn_q_norm"), d, &mut random));
                tensors.push(self.gain(&name("attn_k_norm"), d, &mut random));
            }
            for (linear, from, to, scale, biased) in [
                ("attn_q", c, q, 1.5, self.qkv_bias),
                ("attn_k", c, kv, 1.5, self.qkv_bias),
                ("attn_v", c, kv, 1.0, self.qkv_bias),
                ("attn_output", q, c, 1.0, self.other_bias),
                ("ffn_gate", c, f, 1.0, self.other_bias),
                ("ffn_up", c, f, 1.0, self.other_bias),
                ("ffn_down", f, c, 1.0, self.other_bias),
            ] {
                tensors.push(self.matrix(&name(linear), from, to, scale / (from as f32).sqrt(), &mut random));
                let bias = random.normals(to as usize, 0.5); // drawn in any case: the other tensors do not depend on it
                if biased {
                    tensors.push(vector(&format!("{}.bias", name(linear)), &bias));
                }
            }
        }
        tensors.push(self.gain("output_norm", c, &mut random));
        if !self.tied {
            tensors.push(self.matrix("output", c, v, 1.0 / (c as f32).sqrt(), &mut random));
        }
        if self.neighbours {
            tensors.iter_mut().for_each(|tensor| self.reorder(tensor));
        }
        tensors
    }

    fn matrix(&self, name: &str, row: u64, rows: u64, deviation: f32, random: &mut Random) -> TinyTensor {
        let bytes = random_weights(self.format, (row * rows) as usize, deviation, random);
        TinyTensor { name: format!("{name}.weight"), shape: vec![row, rows], format: self.format, bytes }
    }

    fn gain(&self, name: &str, length: u64, random: &mut Random) -> TinyTensor {
        let values: Vec<f32> = (0..length).map(|_| 1.0 + 0.1 * random.normal()).collect();
        vector(&format!("{name}.weight"), &values)
    }

    /// In every head of Q and K, row i of the first half goes to 2i and row i of the second half to 2i + 1.
    fn reorder(&self, tensor: &mut TinyTensor) {
        if !(tensor.name.contains("attn_q") || tensor.name.contains("attn_k")) {
            return;
        }
        let d = self.head_size as usize;
        let rows = *tensor.shape.last().expect("a shape") as usize;
        let row_bytes = tensor.bytes.len() / rows;
        let from = |row: usize| row / d * d + row % 2 * (d / 2) + row % d / 2;
        tensor.bytes = (0..rows).flat_map(|row| tensor.bytes[from(row) * row_bytes..][..row_bytes].to_vec()).collect();
    }

    /// The file.
    pub fn bytes(&self) -> Vec<u8> {
        write(&self.metadata(), &self.tensors())
    }

    pub fn gguf(&self) -> Gguf {
        self.gguf_of(&self.tensors())
    }

    /// With other tensors than its own.
    pub fn gguf_of(&self, tensors: &[TinyTensor]) -> Gguf {
        Gguf::from_bytes(write(&self.metadata(), tensors)).expect("the tiny model is a valid file")
    }
}

/// Small tensors are F32.
pub fn vector(name: &str, values: &[f32]) -> TinyTensor {
    let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    TinyTensor { name: name.into(), shape: vec![values.len() as u64], format: Format::F32, bytes }
}

/// Random weights of a deviation. In block formats every bit pattern of the quants may occur, also those that a
/// quantizer would not write; the halves (scales and minima) are then fitted to the deviation.
pub fn random_weights(format: Format, weights: usize, deviation: f32, random: &mut Random) -> Vec<u8> {
    let normals = |random: &mut Random| random.normals(weights, deviation);
    let halves: &[usize] = match format {
        Format::F32 => return normals(random).iter().flat_map(|x| x.to_le_bytes()).collect(),
        Format::F16 => return normals(random).iter().flat_map(|&x| f16::from_f32(x).to_le_bytes()).collect(),
        Format::BF16 => return normals(random).iter().flat_map(|&x| bf16::from_f32(x).to_le_bytes()).collect(),
        Format::Q4_0 | Format::Q5_0 | Format::Q8_0 => &[0],
        Format::Q4_1 | Format::Q5_1 | Format::Q4_K | Format::Q5_K => &[0, 2],
        Format::Q6_K => &[208],
    };
    let mut bytes: Vec<u8> =
        (0..weights / format.block_weights() * format.block_bytes()).map(|_| random.below(256) as u8).collect();
    let mut decoded = vec![0.0; format.block_weights()];
    for block in bytes.chunks_exact_mut(format.block_bytes()) {
        let sizes: Vec<f32> =
            halves.iter().map(|_| (0.5 + random.uniform()) * [1.0, -1.0][random.below(2) as usize]).collect();
        let mut set = |factor: f32| {
            for (&at, size) in halves.iter().zip(&sizes) {
                block[at..at + 2].copy_from_slice(&f16::from_f32(size * factor).to_le_bytes());
            }
            format.decode(block, &mut decoded);
            (decoded.iter().map(|x| x * x).sum::<f32>() / decoded.len() as f32).sqrt()
        };
        let root_mean_square = set(1.0);
        set(deviation / root_mean_square);
    }
    bytes
}

fn write(metadata: &[(String, Value)], tensors: &[TinyTensor]) -> Vec<u8> {
    let mut writer = Writer::new();
    for (key, value) in metadata {
        writer.set(key, value.clone());
    }
    for tensor in tensors {
        writer.tensor(&tensor.name, &tensor.shape, tensor.format.tensor_type(), &tensor.bytes);
    }
    writer.to_bytes().expect("the tiny model is a valid file")
}
