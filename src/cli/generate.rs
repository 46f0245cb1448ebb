//! `generate`: continues a text, as a stream or as one JSON object.

use super::open::{ModelFile, RunArgs};
use super::prompt::{PromptArgs, SamplingArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::answer::{Answer, Ask, End, answer};
use peregrine::block_on;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;

/// What the built-in model, which tells tales, begins with when it is given nothing.
const DEFAULT_PROMPT: &str = "Once upon a time";

#[derive(Args)]
pub struct Generate {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// The most tokens to give; -1: until the context is full
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 128)]
    #[arg(value_parser = clap::value_parser!(i64).range(-1..=u32::MAX as i64))]
    tokens: i64,
    /// Print one JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    prompt: PromptArgs,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Go on past the model's end tokens: they are never chosen
    #[arg(long)]
    ignore_eos: bool,
    #[command(flatten)]
    run: RunArgs,
}

impl Generate {
    pub fn run(self) -> Result<(), Failure> {
        let sampling = self.sampling.sampling()?;
        let began = Instant::now();
        let file = ModelFile::open_model(self.model.as_deref())?;
        let prompt = self.prompt.read(&file, self.model.is_none().then_some(DEFAULT_PROMPT))?;
        let mut session = file.session(&self.run)?;
        let load_ms = began.elapsed().as_secs_f64() * 1e3;

        let ask = Ask {
            prompt: &prompt.ids,
            tokenizer: prompt.tokenizer.as_ref(),
            sampling,
            max_tokens: u32::try_from(self.tokens).ok(),
            stop: &self.sampling.stop,
            ignore_eos: self.ignore_eos,
            interrupted: &|_| false, // Ctrl-C ends the program
            given: &|_| (),
        };
        let mut page = output::Page::default();
        let mut given = prompt.text.as_deref();
        let show = |piece: &str| -> Result<(), Failure> {
            if self.json {
                return Ok(());
            }
            if let Some(text) = given.take() {
                show_prompt(&mut page, text)?;
            }
            Ok(page.show(piece)?)
        };
        let answer = block_on(answer(&mut session, ask, show)).inspect_err(|_| page.end_line())?;

        let Answer { ids, text, end, seed, first, decode_tps, .. } = answer;
        let why = match end {
            End::Eos => "eos",
            End::StopString => "stop",
            End::Length | End::Context | End::Interrupted => "length",
        };
        if self.json {
            // null: there was nothing to measure
            let stats = json!({
                "prefill_tps": first.map(|first| prompt.ids.len() as f64 / first),
                "decode_tps": decode_tps,
                "load_ms": load_ms,
                "first_token_ms": first.map(|first| first * 1e3),
            });
            return Ok(output::json(&json!({
                "prompt_ids": prompt.ids, "ids": ids, "text": text, "stop": why, "seed": seed, "stats": stats,
            }))?);
        }
        output::show("\n")?;
        let speed = decode_tps.map_or(String::new(), |tps| format!(", {tps:.1} tokens/s"));
        let full = if end == End::Context { ", the context is full" } else { "" };
        let tokens = output::counted(ids.len() as u64, "token");
        output::tell(format!("[{tokens}{speed}, seed {seed}, stopped by {why}{full}]"));
        Ok(())
    }
}

/// The prompt before the text that continues it, in bold on a terminal.
fn show_prompt(page: &mut output::Page, text: &[u8]) -> std::io::Result<()> {
    if !console::colors_enabled() {
        return output::show(text);
    }
    output::show("\x1b[1m")?;
    page.show(&String::from_utf8_lossy(text))?;
    output::show("\x1b[0m")
}
