//! Config: the numbers of a model, read from GGUF metadata. Every number is checked against what a model can have, so
//! that a nonsensical file is an error that names the key, and never a panic or a huge allocation later.

use super::rope::{Pairing, RopeConfig};
use crate::error::{Error, Result};
use crate::gguf::{Gguf, Value};
use std::ops::RangeInclusive;

/// The model families that we know. Their graphs are one and the same; what differs is stated here and in `tensors`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Architecture {
    /// Llama 1 to 3, Mistral, TinyLlama, SmolLM2 and many more that ship under this name.
    Llama,
    /// Biases on Q, K and V.
    Qwen2,
    /// RMSNorm on every head of Q and K, and a head size of its own.
    Qwen3,
}

impl Architecture {
    pub const ALL: [Architecture; 3] = [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3];

    /// The name in `general.architecture`, which is also the prefix of the model's keys.
    pub fn name(self) -> &'static str {
        match self {
            Architecture::Llama => "llama",
            Architecture::Qwen2 => "qwen2",
            Architecture::Qwen3 => "qwen3",
        }
    }

    pub fn from_name(name: &str) -> Option<Architecture> {
        Architecture::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// How RoPE pairs the numbers of a head. No key tells it: it follows from how the converter of each architecture
    /// writes Q and K. For `llama` it permutes their rows so that pairs become neighbours; for the others it does not.
    pub fn pairing(self) -> Pairing {
        match self {
            Architecture::Llama => Pairing::Neighbours,
            Architecture::Qwen2 | Architecture::Qwen3 => Pairing::Halves,
        }
    }

    fn from_gguf(gguf: &Gguf) -> Result<Architecture> {
        let key = "general.architecture";
        let kind = gguf.str("general.type").unwrap_or(None).unwrap_or("model");
        let name = gguf.str(key)?.unwrap_or_default();
        if let Some(other) = other_kind(kind, name) {
            return Err(other);
        }
        if name.is_empty() {
            let hint = "the file is very old or no language model; convert the original model again".into();
            return Err(Error::MissingKey { key: key.into(), hint });
        }
        Architecture::from_name(name).ok_or_else(|| {
            let known = Architecture::ALL.map(Architecture::name).join(", ");
            Error::Unsupported { what: format!("architecture {name:?}"), hint: format!("Known are {known}") }
        })
    }
}

/// GGUF files that are no language model, though they come in the same folders under similar names.
fn other_kind(kind: &str, architecture: &str) -> Option<Error> {
    let (what, hint) = match (kind, architecture) {
        ("adapter", _) => ("a LoRA adapter, which only changes another model", "Give the model that it was made for"),
        ("mmproj", _) | (_, "clip") => (
            "a projector (mmproj) for images or sound, not a language model",
            "Give the language model that it belongs to",
        ),
        ("imatrix", _) | (_, "imatrix") => {
            ("an importance matrix for quantizing, not a model", "Give the model itself")
        }
        (_, "controlvector") => ("a control vector, which only steers another model", "Give the model itself"),
        (_, name) if name.contains("bert") || name == "t5encoder" => {
            let what = format!("{name} is an embedding model, not one that generates text");
            return Some(Error::Unsupported { what, hint: "Take a model made for generating text".into() });
        }
        _ => return None,
    };
    Some(Error::Unsupported { what: format!("this is {what}"), hint: hint.into() })
}

/// The numbers of a model. Dims: C channels (embedding length), H heads, KV kv heads, D head size, F feed-forward,
/// V vocabulary.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    pub architecture: Architecture,
    /// `general.name`, for people.
    pub name: Option<String>,
    /// Transformer blocks.
    pub block_count: u32,
    /// C: numbers per token between the blocks.
    pub embedding_length: u32,
    /// V: tokens of the vocabulary, and rows of the embedding.
    pub vocab_size: u32,
    /// Tokens that the model was trained to see at once.
    pub context_length: u32,
    /// H of each block, `[block_count]`.
    pub heads: Vec<u32>,
    /// KV of each block, `[block_count]`; divides H.
    pub kv_heads: Vec<u32>,
    /// F of each block, `[block_count]`.
    pub feed_forward: Vec<u32>,
    /// D, of queries, keys and values alike. H * D need not equal C.
    pub head_size: u32,
    /// Added to the mean square in every RMSNorm.
    pub rms_eps: f32,
    pub rope: RopeConfig,
}

/// Bounds that no real model comes near; their products fit u32.
const MAX_BLOCKS: u32 = 1024;
const MAX_EMBEDDING: u32 = 1 << 18;
const MAX_FEED_FORWARD: u32 = 1 << 20;
const MAX_HEADS: u32 = 4096;
const MAX_HEAD_SIZE: u32 = 4096;
const MAX_VOCAB: u32 = 1 << 24;
const MAX_CONTEXT: u32 = 1 << 30;

impl Config {
    /// Reads the numbers. A key that has no safe default and is absent is [`Error::MissingKey`]; a value of the wrong
    /// kind or out of bounds is [`Error::Key`]; an architecture or a variant of one that we cannot compute is
    /// [`Error::Unsupported`].
    pub fn from_gguf(gguf: &Gguf) -> Result<Config> {
        let architecture = Architecture::from_gguf(gguf)?;
        let keys = Keys { gguf, prefix: architecture.name() };
        keys.refuse_variants()?;

        let block_count = keys.number("block_count", 1..=MAX_BLOCKS)?;
        let embedding_length = keys.number("embedding_length", 1..=MAX_EMBEDDING)?;
        let heads = keys.per_block("attention.head_count", block_count, 1..=MAX_HEADS)?;
        let heads = heads.ok_or_else(|| keys.missing("attention.head_count"))?;
        let kv_heads = keys.per_block("attention.head_count_kv", block_count, 1..=MAX_HEADS)?;
        let kv_heads = kv_heads.unwrap_or_else(|| heads.clone()); // absent: no sharing, as the first models had it
        for (block, (h, kv)) in heads.iter().zip(&kv_heads).enumerate() {
            if h % kv != 0 {
                let expected = format!("a divisor of the {h} heads of block {block}");
                return Err(keys.bad("attention.head_count_kv", expected, kv));
            }
        }
        let feed_forward = keys.per_block("feed_forward_length", block_count, 1..=MAX_FEED_FORWARD)?;
        let feed_forward = feed_forward.ok_or_else(|| keys.missing("feed_forward_length"))?;
        let head_size = keys.head_size(embedding_length, heads[0])?;
        let context_length = keys.number("context_length", 1..=MAX_CONTEXT)?;
        let rms_eps = keys.float("attention.layer_norm_rms_epsilon", 0.0..=1.0)?;
        let rms_eps = rms_eps.ok_or_else(|| keys.missing("attention.layer_norm_rms_epsilon"))?;

        Ok(Config {
            architecture,
            name: gguf.str("general.name").unwrap_or(None).map(str::to_string),
            block_count,
            embedding_length,
            vocab_size: keys.vocab_size()?,
            context_length,
            heads,
            kv_heads,
            feed_forward,
            head_size,
            rms_eps,
            rope: RopeConfig::from_keys(&keys, architecture.pairing(), head_size, context_length)?,
        })
    }

    /// H * D of a block: the length of its queries.
    pub fn q_length(&self, block: usize) -> u32 {
        self.heads[block] * self.head_size
    }

    /// KV * D of a block: the length of its keys, and of its values.
    pub fn kv_length(&self, block: usize) -> u32 {
        self.kv_heads[block] * self.head_size
    }
}

/// The keys of one architecture: names without its prefix, values checked.
pub(super) struct Keys<'a> {
    pub gguf: &'a Gguf,
    pub prefix: &'static str,
}

impl Keys<'_> {
    pub fn full(&self, name: &str) -> String {
        format!("{}.{name}", self.prefix)
    }

    pub fn missing(&self, name: &str) -> Error {
        let hint = "there is no safe default for it; the file is incomplete, convert the original model again".into();
        Error::MissingKey { key: self.full(name), hint }
    }

    pub fn bad(&self, name: &str, expected: impl Into<String>, got: impl ToString) -> Error {
        Error::Key { key: self.full(name), expected: expected.into(), got: got.to_string() }
    }

    /// A number that must be there.
    fn number(&self, name: &str, range: RangeInclusive<u32>) -> Result<u32> {
        self.optional_number(name, range)?.ok_or_else(|| self.missing(name))
    }

    pub fn optional_number(&self, name: &str, range: RangeInclusive<u32>) -> Result<Option<u32>> {
        match self.gguf.u32(&self.full(name))? {
            Some(number) if !range.contains(&number) => Err(self.bad(name, bounds(&range), number)),
            number => Ok(number),
        }
    }

    pub fn float(&self, name: &str, range: RangeInclusive<f32>) -> Result<Option<f32>> {
        match self.gguf.f32(&self.full(name))? {
            Some(number) if !range.contains(&number) => {
                Err(self.bad(name, format!("a number from {} to {}", range.start(), range.end()), number))
            }
            number => Ok(number),
        }
    }

    /// One number for each block, from a scalar or from an array. The array may be longer (files with extra prediction
    /// blocks count them there), but not shorter.
    fn per_block(&self, name: &str, blocks: u32, range: RangeInclusive<u32>) -> Result<Option<Vec<u32>>> {
        let array = match self.gguf.get(&self.full(name)) {
            Some(Value::Array(array)) => array,
            _ => return Ok(self.optional_number(name, range)?.map(|number| vec![number; blocks as usize])),
        };
        if array.len() < blocks as usize {
            return Err(self.bad(
                name,
                format!("a number for each of {blocks} blocks"),
                format!("{} of them", array.len()),
            ));
        }
        let mut numbers = Vec::with_capacity(blocks as usize);
        for block in 0..blocks as usize {
            let number =
                array.get(block).and_then(|value| value.as_u64()).and_then(|number| u32::try_from(number).ok());
            let Some(number) = number.filter(|number| range.contains(number)) else {
                let expected = format!("{} for block {block}", bounds(&range));
                let got = array.get(block).map_or_else(String::new, |value| match (value.as_u64(), value.as_f32()) {
                    (Some(number), _) => number.to_string(),
                    (None, Some(number)) => number.to_string(),
                    (None, None) => value.kind(),
                });
                return Err(self.bad(name, expected, got));
            };
            numbers.push(number);
        }
        Ok(Some(numbers))
    }

    /// Variants of known architectures whose graph is another one.
    fn refuse_variants(&self) -> Result<()> {
        let experts = self.optional_number("expert_count", 0..=u32::MAX)?.unwrap_or(0);
        if experts > 0 {
            let what = format!("a mixture of {experts} experts ({})", self.full("expert_count"));
            return Err(Error::Unsupported { what, hint: "Take a dense model of the same family".into() });
        }
        if self.gguf.bool(&self.full("attention.causal"))? == Some(false) {
            let what = format!("an embedding model ({} is false)", self.full("attention.causal"));
            return Err(Error::Unsupported { what, hint: "Take a model made for generating text".into() });
        }
        Ok(())
    }

    /// Explicit, or embedding length / heads.
    fn head_size(&self, embedding_length: u32, heads: u32) -> Result<u32> {
        let head_size = match self.optional_number("attention.key_length", 1..=MAX_HEAD_SIZE)? {
            Some(key_length) => key_length,
            None if embedding_length.is_multiple_of(heads) => embedding_length / heads,
            None => {
                let expected =
                    format!("a divisor of the embedding length {embedding_length}, as no key_length is given");
                return Err(self.bad("attention.head_count", expected, heads));
            }
        };
        match self.optional_number("attention.value_length", 1..=MAX_HEAD_SIZE)? {
            Some(length) if length != head_size => {
                Err(self.bad("attention.value_length", format!("the size of keys, {head_size}"), length))
            }
            _ => Ok(head_size),
        }
    }

    /// The token list counts; without one the rows of the embedding do. The key `vocab_size` is often wrong and is
    /// asked last.
    fn vocab_size(&self) -> Result<u32> {
        let tokens = self.gguf.strings("tokenizer.ggml.tokens")?.map(|tokens| tokens.len() as u64);
        let rows = || self.gguf.tensor("token_embd.weight").and_then(|tensor| tensor.shape.get(1).copied());
        match tokens.filter(|&n| n > 0).or_else(rows) {
            Some(size) if (1..=MAX_VOCAB as u64).contains(&size) => Ok(size as u32),
            Some(size) => Err(Error::Key {
                key: "tokenizer.ggml.tokens".into(),
                expected: format!("a vocabulary of 1 to {MAX_VOCAB} tokens"),
                got: size.to_string(),
            }),
            None => self.number("vocab_size", 1..=MAX_VOCAB),
        }
    }
}

fn bounds(range: &RangeInclusive<u32>) -> String {
    format!("a number from {} to {}", range.start(), range.end())
}
