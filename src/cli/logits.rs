//! `logits`: the most likely next tokens.

use super::open::{ModelFile, RunArgs};
use super::prompt::PromptArgs;
use super::tokenize::quoted;
use super::{Failure, output};
use clap::Args;
use peregrine::reference::ops::top_k;
use peregrine::{Error, block_on};
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
pub struct Logits {
    /// A GGUF file
    model: PathBuf,
    /// How many tokens of each position
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..))]
    top: u32,
    /// Every position of the prompt, not the last alone
    #[arg(long)]
    all: bool,
    /// Print {"positions":[{"pos":..,"top":[[id,logit],..]}]}
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    run: RunArgs,
}

impl Logits {
    pub fn run(self) -> Result<(), Failure> {
        let file = ModelFile::open_model(Some(&self.model))?;
        let prompt = self.prompt.read(&file, None)?;
        let mut session = file.session(&self.run)?;
        let mut positions: Vec<(u32, Vec<(u32, f32)>)> = Vec::new();
        let mut broken = None;
        let mut take = |position: u32, logits: &[f32]| {
            if let Some(id) = logits.iter().position(|logit| !logit.is_finite()) {
                broken.get_or_insert(Error::NotFinite { position, id: id as u32, value: logits[id] });
            }
            let (ids, values) = top_k(logits, logits.len().min(self.top as usize));
            positions.push((position, ids.into_iter().zip(values).collect()));
        };
        if self.all {
            block_on(session.append_all(&prompt.ids, take))?;
        } else {
            block_on(session.append(&prompt.ids))?;
            take(session.position() - 1, &block_on(session.logits())?);
        }
        if let Some(error) = broken {
            return Err(error.into());
        }
        if self.json {
            let list: Vec<_> = positions.iter().map(|(pos, top)| json!({ "pos": pos, "top": top })).collect();
            return Ok(output::json(&json!({ "positions": list }))?);
        }
        for (position, top) in positions {
            output::line(format!("position {position}"), 0)?;
            for (id, logit) in top {
                let text = prompt.tokenizer.as_ref().map_or(String::new(), |t| quoted(&t.piece(id, true)));
                output::line(format!("  {id:>7} {logit:>10.4}  {text}"), 0)?;
            }
        }
        Ok(())
    }
}
