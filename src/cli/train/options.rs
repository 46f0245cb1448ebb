//! What settings mean: options for the library, and what of them does not suit the model.

use super::settings::{Down, Full, Kind, Lora, Precision, Recipe, Rule, Run, Scratch, Settings};
use crate::cli::Failure;
use peregrine::formats::Format;
use peregrine::model::tensors::{Role, Slot, slots};
use peregrine::model::{Architecture, Target};
use peregrine::train::{AdamW, Compute, DataKind, Decline, LoraOptions, NewModel, Optimizer, Schedule};
use peregrine::{Config, Error};
use std::path::Path;

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
            Some(Precision::F16) => Compute::F16,
            Some(Precision::F32) | None => Compute::F32,
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
