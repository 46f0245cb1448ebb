//! `logits`: the most likely next tokens.

use super::open::{self, RunArgs};
use super::prompt::PromptArgs;
use super::{Failure, output};
use clap::Args;
use peregrine::reference::ops::top_k;
use peregrine::tokenizer::Tokenizer;
use peregrine::{Error, block_on};
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
pub struct Logits {
    /// A GGUF file
    model: PathBuf,
    #[command(flatten)]
    prompt: PromptArgs,
    /// How many tokens of each position
    #[arg(long, value_name = "N", default_value_t = 10)]
    top: usize,
    /// Every position of the prompt, not the last alone
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Print {"positions":[{"pos":..,"top":[[id,logit],..]}]}
    #[arg(long)]
    json: bool,
}

impl Logits {
    pub fn run(self) -> Result<(), Failure> {
        let gguf = open::runnable(Some(&self.model))?;
        let ids = self.prompt.ids(&gguf, None)?;
        let mut session = self.run.session(&gguf)?;
        let mut positions: Vec<(u32, Vec<(u32, f32)>)> = Vec::new();
        let mut broken = None;
        let mut take = |position: u32, logits: &[f32]| {
            if let Some(id) = logits.iter().position(|logit| !logit.is_finite()) {
                broken.get_or_insert(Error::NotFinite { position, id: id as u32, value: logits[id] });
            }
            let (ids, values) = top_k(logits, self.top.min(logits.len()));
            positions.push((position, ids.into_iter().zip(values).collect()));
        };
        if self.all {
            block_on(session.append_all(&ids, take))?;
        } else {
            block_on(session.append(&ids))?;
            take(session.position() - 1, &block_on(session.logits())?);
        }
        if let Some(error) = broken {
            return Err(error.into());
        }
        if self.json {
            let list: Vec<_> = positions.iter().map(|(pos, top)| json!({ "pos": pos, "top": top })).collect();
            return Ok(output::json(&json!({ "positions": list }))?);
        }
        let tokenizer = Tokenizer::from_gguf(&gguf).ok();
        for (position, top) in positions {
            println!("position {position}");
            for (id, logit) in top {
                let text = tokenizer.as_ref().map(|t| String::from_utf8_lossy(&t.piece(id, true)).into_owned());
                println!("  {id:>7} {logit:>10.4}  {:?}", text.unwrap_or_default());
            }
        }
        Ok(())
    }
}
