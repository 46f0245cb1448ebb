//! The settings of a training run: as flags, and as a TOML file. What is left out has the default that is told here;
//! options.rs makes of them what the library takes.

use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// A whole recipe.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    pub recipe: Recipe,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<PathBuf>,
    #[serde(default)]
    pub run: Run,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lora: Option<Lora>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub full: Option<Full>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Scratch>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Recipe {
    Lora,
    Full,
    Scratch,
    WarmStart,
}

impl Recipe {
    pub fn name(self) -> &'static str {
        match self {
            Recipe::Lora => "lora",
            Recipe::Full => "full",
            Recipe::Scratch => "scratch",
            Recipe::WarmStart => "warm-start",
        }
    }
}

/// What all recipes have.
#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Run {
    /// Text, or JSONL of {"text"}, {"messages"} or {"prompt", "completion"}
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub data: Option<PathBuf>,
    /// Validation data: judged by, not learned
    #[arg(long, value_name = "FILE", help_heading = "Data")]
    pub val: Option<PathBuf>,
    /// Without --val: the share of the data that is kept back for validation [default: 0]
    #[arg(long, value_name = "SHARE", conflicts_with = "val", help_heading = "Data")]
    pub val_share: Option<f64>,
    /// What the data holds [default: told by the file's name and its first line]
    #[arg(long, value_enum, help_heading = "Data")]
    pub kind: Option<Kind>,
    /// For {"messages"} of a model without a chat template of its own: a template file, or the name of a well-known one
    #[arg(long, value_name = "FILE|NAME", help_heading = "Data")]
    pub chat_template: Option<String>,
    /// Tokens of a sequence at most [default: 512, or what the model was trained for if that is less]
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub ctx: Option<u32>,
    /// Sequences of a batch [default: 4]
    #[arg(long, value_name = "N", help_heading = "Data")]
    pub batch: Option<u32>,
    /// Gradient accumulation: batches of a step [default: 1]
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub accum: Option<u32>,
    /// Steps to take
    #[arg(long, value_name = "N", conflicts_with = "epochs", help_heading = "Schedule")]
    pub steps: Option<u64>,
    /// Instead of steps: how often to go through the data [default: 1]
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub epochs: Option<u64>,
    /// Learning rate [default: 2e-4 for adapters, 2e-5 for a model, 1e-3 for a new one]
    #[arg(long, value_name = "RATE", help_heading = "Schedule")]
    pub lr: Option<f64>,
    /// Steps of linear warm-up to the whole rate [default: a twentieth of all]
    #[arg(long, value_name = "N", help_heading = "Schedule")]
    pub warmup: Option<u64>,
    /// How the rate goes down after the warm-up [default: cosine]
    #[arg(long, value_enum, help_heading = "Schedule")]
    pub schedule: Option<Down>,
    /// The share of the rate that is left at the end [default: 0.1]
    #[arg(long, value_name = "SHARE", help_heading = "Schedule")]
    pub least: Option<f64>,
    /// The rule by which weights change [default: adamw]
    #[arg(long, value_enum, help_heading = "Optimizer")]
    pub optimizer: Option<Rule>,
    /// AdamW's first beta [default: 0.9]
    #[arg(long, value_name = "B", help_heading = "Optimizer")]
    pub beta1: Option<f64>,
    /// AdamW's second beta [default: 0.999]
    #[arg(long, value_name = "B", help_heading = "Optimizer")]
    pub beta2: Option<f64>,
    /// SGD's momentum [default: 0.9]
    #[arg(long, value_name = "M", help_heading = "Optimizer")]
    pub momentum: Option<f64>,
    /// Decoupled weight decay, of matrices alone [default: 0.01]
    #[arg(long, value_name = "D", help_heading = "Optimizer")]
    pub decay: Option<f64>,
    /// Clip the gradients to this global norm; 0: never [default: 1]
    #[arg(long, value_name = "NORM", help_heading = "Optimizer")]
    pub clip: Option<f64>,
    /// Of new weights, dropout and the order of the data [default: 0]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub seed: Option<u64>,
    /// Steps between checkpoints [default: 100]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub save_every: Option<u64>,
    /// Steps between evaluations on the validation data [default: as --save-every]
    #[arg(long, value_name = "N", help_heading = "Run")]
    pub val_every: Option<u64>,
    /// Continue this text at every evaluation, to see what was learned
    #[arg(long, value_name = "TEXT", help_heading = "Run")]
    pub sample: Option<String>,
    /// What matrices are multiplied in; f16 (with sums, weights and moments in f32) where the device has matrix hardware
    /// [default: f32]
    #[arg(long, value_enum, help_heading = "Run")]
    pub compute: Option<Precision>,
    /// Activation checkpointing: compute blocks again in the backward pass: much less memory, a third more time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Run")]
    pub recompute: Option<bool>,
    /// Of {"text"} lines: each a sequence of its own, instead of one row of them cut into sequences
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Data")]
    pub no_pack: Option<bool>,
}

/// The library's `DataKind` as a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Plain text
    Text,
    /// JSONL of {"text"}
    Documents,
    /// JSONL of {"messages"}
    Chats,
    /// JSONL of {"prompt", "completion"}
    Completions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Down {
    Constant,
    Linear,
    Cosine,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    #[value(name = "adamw")]
    #[serde(rename = "adamw")]
    AdamW,
    Sgd,
}

/// The library's `Compute` as a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Precision {
    F32,
    F16,
}

#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Lora {
    /// Begin with this adapter instead of a new one: its rank, alpha and matrices stay
    #[arg(long, value_name = "FILE", conflicts_with_all = ["rank", "alpha", "target", "rslora"])]
    pub from: Option<PathBuf>,
    /// Rank of the adapters [default: 16]
    #[arg(long, value_name = "N")]
    pub rank: Option<u32>,
    /// Adapters are multiplied with alpha / rank [default: 32]
    #[arg(long, value_name = "ALPHA")]
    pub alpha: Option<f32>,
    /// The matrices that get adapters: of q, k, v, o, gate, up, down, or all [default: q,v]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub target: Option<Vec<String>>,
    /// Multiply with alpha / sqrt(rank) instead (rsLoRA)
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub rslora: Option<bool>,
    /// Dropout of the adapters' inputs [default: 0]
    #[arg(long, value_name = "SHARE")]
    pub dropout: Option<f32>,
    /// Also write the whole model with its adapters merged, matrices in this format ("base": as they are there)
    #[arg(long, value_name = "FORMAT")]
    pub merge: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Full {
    /// The tensors that learn, by parts of their names: "attn_q,ffn" [default: all of the blocks and the output norm]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub tensors: Option<Vec<String>>,
    /// Without --tensors: the embedding and the output head learn, too
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", conflicts_with = "tensors")]
    pub embeddings: Option<bool>,
    /// Format of the matrices in the model that is written ("base": as in the one that was given) [default: base]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Args, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Scratch {
    /// A GGUF file whose vocabulary the new model shall have [default: the built-in model's]
    #[arg(long, value_name = "FILE")]
    pub tokenizer: Option<PathBuf>,
    /// Instead: learn a vocabulary of so many tokens from the data
    #[arg(long, value_name = "N", conflicts_with = "tokenizer")]
    pub vocab: Option<u32>,
    /// llama, qwen2 or qwen3 [default: llama]
    #[arg(long, value_name = "NAME")]
    pub architecture: Option<String>,
    /// The model's name in its file
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Transformer blocks [default: 6]
    #[arg(long, value_name = "N")]
    pub blocks: Option<u32>,
    /// Channels between the blocks [default: 192]
    #[arg(long, value_name = "N")]
    pub embedding: Option<u32>,
    /// Attention heads [default: 6]
    #[arg(long, value_name = "N")]
    pub heads: Option<u32>,
    /// Heads of keys and values, a divisor of the heads [default: 2]
    #[arg(long, value_name = "N")]
    pub kv_heads: Option<u32>,
    /// Channels of a head [default: 32]
    #[arg(long, value_name = "N")]
    pub head_size: Option<u32>,
    /// Channels of the feed-forward [default: 512]
    #[arg(long, value_name = "N")]
    pub feed_forward: Option<u32>,
    /// Base of the RoPE frequencies [default: 10000]
    #[arg(long, value_name = "BASE")]
    pub rope_base: Option<f32>,
    /// A matrix of its own for the output head, instead of the embedding
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    pub untied: Option<bool>,
    /// Format of the matrices in the model that is written [default: F32]
    #[arg(long, value_name = "FORMAT")]
    pub format: Option<String>,
}
