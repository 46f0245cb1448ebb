//! The settings of a training run: as flags, and as a TOML file. What is left out has the default that is told here.

use crate::cli::Failure;
use clap::{Args, ValueEnum};
use peregrine::formats::Format;
use peregrine::model::tensors::{Role, Slot, slots};
use peregrine::model::{Architecture, Target};
use peregrine::train::{AdamW, Compute, DataKind, Decline, LoraOptions, NewModel, Optimizer, Schedule};
use peregrine::{Config, Error};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};

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
    pub compute: Option<In>,
    /// Activation checkpointing: compute blocks again in the backward pass: much less memory, a third more time
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Run")]
    pub recompute: Option<bool>,
    /// Of {"text"} lines: each a sequence of its own, instead of one row of them cut into sequences
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true", help_heading = "Data")]
    pub no_pack: Option<bool>,
}

/// [`DataKind`] as a flag.
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

impl From<Kind> for DataKind {
    fn from(kind: Kind) -> DataKind {
        match kind {
            Kind::Text => DataKind::Text,
            Kind::Documents => DataKind::Documents,
            Kind::Chats => DataKind::Chats,
            Kind::Completions => DataKind::Completions,
        }
    }
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

/// [`Compute`] as a flag.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum In {
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

pub fn bad(what: &str, expected: impl Into<String>, got: impl ToString) -> Failure {
    Error::Argument { what: what.into(), expected: expected.into(), got: got.to_string() }.into()
}

impl Settings {
    pub fn of(recipe: Recipe, run: Run) -> Settings {
        Settings { recipe, model: None, run, lora: None, full: None, scratch: None }
    }

    /// Whether the formats of what the run will write suit the model: better told before than after the run.
    pub fn check_formats(&self, config: &Config) -> Result<(), Failure> {
        for (flag, name) in self.formats() {
            let Some(format) = format(flag, name)? else { continue };
            let whole = |slot: &&Slot| slot.shape[0].is_multiple_of(format.block_weights() as u64);
            let matrices = || slots(config).into_iter().filter(|slot| slot.role == Role::Matrix);
            if let Some(slot) = matrices().find(|slot| !whole(&slot)) {
                let expected = format!("a format for rows of {}, as {} has them", slot.shape[0], slot.name);
                let got = format!("{}, whose blocks have {} weights", format.name(), format.block_weights());
                return Err(bad(flag, expected, got));
            }
        }
        Ok(())
    }

    /// Whether each part of `--tensors` names something of the model.
    pub fn check_tensors(&self, config: &Config) -> Result<(), Failure> {
        let parts = self.full.iter().flat_map(|full| &full.tensors).flatten();
        let slots = slots(config);
        for part in parts {
            if !slots.iter().any(|slot| slot.name.contains(part.trim())) {
                return Err(bad("--tensors", "parts of names of the model's tensors", format!("{part:?}")));
            }
        }
        Ok(())
    }

    /// Paths as they are from everywhere: a run may be resumed from another folder.
    pub fn absolute(mut self) -> Settings {
        let Settings { model, run, lora, scratch, .. } = &mut self;
        let from = lora.as_mut().and_then(|lora| lora.from.as_mut());
        let tokenizer = scratch.as_mut().and_then(|scratch| scratch.tokenizer.as_mut());
        for path in [model.as_mut(), run.data.as_mut(), run.val.as_mut(), from, tokenizer].into_iter().flatten() {
            *path = std::path::absolute(&*path).unwrap_or_else(|_| path.clone());
        }
        let template = run.chat_template.as_mut().filter(|template| Path::new(template).is_file()); // or it is a name
        if let Some(template) = template
            && let Ok(path) = std::path::absolute(&*template)
        {
            *template = path.display().to_string();
        }
        self
    }

    /// (flag, name) of the formats that are asked for.
    pub fn formats(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let formats = [
            ("--merge", self.lora.as_ref().and_then(|lora| lora.merge.as_deref())),
            ("--format", self.full.as_ref().and_then(|full| full.format.as_deref())),
            ("--format", self.scratch.as_ref().and_then(|scratch| scratch.format.as_deref())),
        ];
        formats.into_iter().filter_map(|(flag, name)| Some((flag, name?)))
    }

    /// The rate over so many steps.
    pub fn schedule(&self, steps: u64) -> Schedule {
        let usual = match self.recipe {
            Recipe::Lora => 2e-4,
            Recipe::Full => 2e-5,
            Recipe::Scratch | Recipe::WarmStart => 1e-3,
        };
        Schedule {
            rate: self.run.lr.unwrap_or(usual),
            warm_up: self.run.warmup.unwrap_or(steps / 20),
            steps,
            decline: match self.run.schedule.unwrap_or(Down::Cosine) {
                Down::Constant => Decline::Constant,
                Down::Linear => Decline::Linear,
                Down::Cosine => Decline::Cosine,
            },
            least: self.run.least.unwrap_or(0.1),
        }
    }

    pub fn compute(&self) -> Compute {
        match self.run.compute {
            Some(In::F16) => Compute::F16,
            Some(In::F32) | None => Compute::F32,
        }
    }

    pub fn optimizer(&self) -> Optimizer {
        let (run, usual) = (&self.run, AdamW::default());
        let decay = run.decay.unwrap_or(usual.decay);
        match run.optimizer.unwrap_or(Rule::AdamW) {
            Rule::AdamW => Optimizer::AdamW(AdamW {
                beta1: run.beta1.unwrap_or(usual.beta1),
                beta2: run.beta2.unwrap_or(usual.beta2),
                decay,
                ..usual
            }),
            Rule::Sgd => Optimizer::Sgd { momentum: run.momentum.unwrap_or(0.9), decay },
        }
    }
}

impl Lora {
    pub fn options(&self) -> Result<LoraOptions, Failure> {
        let usual = LoraOptions::default();
        let targets = match &self.target {
            None => usual.targets,
            Some(names) if names.len() == 1 && names[0].trim() == "all" => Target::ALL.to_vec(),
            Some(names) => {
                let target = |name: &String| {
                    let known = "some of q, k, v, o, gate, up, down, or all alone";
                    Target::from_name(name.trim()).ok_or_else(|| bad("--target", known, format!("{name:?}")))
                };
                names.iter().map(target).collect::<Result<_, _>>()?
            }
        };
        Ok(LoraOptions {
            targets,
            rank: self.rank.unwrap_or(usual.rank),
            alpha: self.alpha.unwrap_or(usual.alpha),
            rank_stabilized: self.rslora.unwrap_or(false),
            dropout: self.dropout.unwrap_or(0.0),
        })
    }
}

impl Full {
    /// Whether a tensor learns.
    pub fn chooses(&self, name: &str) -> bool {
        match &self.tensors {
            Some(parts) => parts.iter().any(|part| name.contains(part.trim())),
            None => self.embeddings.unwrap_or(false) || !matches!(name, "token_embd.weight" | "output.weight"),
        }
    }
}

impl Scratch {
    pub fn model(&self, context: u32) -> Result<NewModel, Failure> {
        let name = self.architecture.as_deref().unwrap_or("llama");
        let known = Architecture::ALL.map(Architecture::name).join(", ");
        Ok(NewModel {
            architecture: Architecture::from_name(name)
                .ok_or_else(|| bad("--architecture", format!("one of {known}"), name))?,
            name: self.name.clone().unwrap_or_else(|| "A new model".into()),
            blocks: self.blocks.unwrap_or(6),
            embedding: self.embedding.unwrap_or(192),
            heads: self.heads.unwrap_or(6),
            kv_heads: self.kv_heads.unwrap_or(2),
            head_size: self.head_size.unwrap_or(32),
            feed_forward: self.feed_forward.unwrap_or(512),
            context,
            rope_base: self.rope_base.unwrap_or(10_000.0),
            rms_eps: 1e-5,
            tied: !self.untied.unwrap_or(false),
        })
    }
}

/// A format by its name; None for "base".
pub fn format(flag: &str, name: &str) -> Result<Option<Format>, Failure> {
    if name.eq_ignore_ascii_case("base") {
        return Ok(None);
    }
    let known = || format!("base, {}", Format::ALL.map(Format::name).join(", "));
    Format::from_name(name).map(Some).ok_or_else(|| bad(flag, known(), format!("{name:?}")))
}

/// Tokens of a sequence for a model.
pub fn context_for(run: &Run, config: &Config) -> u32 {
    run.ctx.unwrap_or_else(|| config.context_length.min(512))
}
