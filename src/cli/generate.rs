//! `generate`: continues a text, as a stream or as one JSON object.

use super::open::{self, RunArgs};
use super::prompt::{PromptArgs, SamplingArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::sampling::StopStrings;
use peregrine::tokenizer::Tokenizer;
use peregrine::{GenerateOptions, Stop, block_on};
use serde_json::json;
use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

/// What the built-in model, which tells tales, begins with when it is given nothing.
const DEFAULT_PROMPT: &str = "Once upon a time";

#[derive(Args)]
pub struct Generate {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    #[command(flatten)]
    prompt: PromptArgs,
    /// The most tokens to give; -1: until the context is full
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 128, allow_negative_numbers = true)]
    tokens: i64,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Stop where this text comes; may be given several times. The text itself is not shown
    #[arg(long, value_name = "TEXT")]
    stop: Vec<String>,
    /// Go on past the model's end tokens: they are never chosen
    #[arg(long)]
    ignore_eos: bool,
    #[command(flatten)]
    run: RunArgs,
    /// Print one JSON object at the end instead of the text as it comes
    #[arg(long)]
    json: bool,
}

impl Generate {
    pub fn run(self) -> Result<(), Failure> {
        let began = Instant::now();
        let gguf = open::runnable(self.model.as_deref())?;
        let default = self.model.is_none().then_some(DEFAULT_PROMPT);
        let prompt = self.prompt.ids(&gguf, default)?;
        // with ids given, a file without a vocabulary serves too: it gives ids
        let tokenizer = match Tokenizer::from_gguf(&gguf) {
            Ok(tokenizer) => (tokenizer.vocab_size() > 0).then_some(tokenizer),
            Err(_) if self.prompt.prompt_ids.is_some() => None,
            Err(error) => return Err(error.into()),
        };
        let end_ids = tokenizer.as_ref().map_or(Vec::new(), |t| t.end_ids().to_vec());
        let mut stops = StopStrings::new(self.stop.clone())?;
        let stop_ids: Vec<u32> =
            self.stop.iter().filter_map(|text| tokenizer.as_ref()?.id_of(text.as_bytes())).collect();

        let mut session = self.run.session(&gguf)?;
        let load_ms = began.elapsed().as_secs_f64() * 1e3;
        let start = Instant::now();
        block_on(session.append(&prompt))?;

        let barred = if self.ignore_eos { end_ids.clone() } else { Vec::new() };
        let ends = if self.ignore_eos { stop_ids } else { [end_ids, stop_ids].concat() };
        let options = GenerateOptions {
            sampling: self.sampling.sampling(barred),
            max_tokens: u32::try_from(self.tokens).ok(),
            end_ids: ends,
        };
        let mut generation = session.generate(options)?;
        if !self.json && self.prompt.prompt_ids.is_none() {
            let text = self.prompt.text(default)?.unwrap_or_default();
            show(&String::from_utf8_lossy(&text))?;
        }
        let mut stream = tokenizer.as_ref().map(Tokenizer::stream);
        let (mut ids, mut text, mut first, mut stopped) = (Vec::new(), String::new(), None, false);
        while let Some(id) = block_on(generation.next_token())? {
            first.get_or_insert_with(|| start.elapsed());
            ids.push(id);
            let piece = stream.as_mut().map_or_else(String::new, |stream| stream.push(id));
            let (piece, stop) = stops.push(&piece);
            if !self.json {
                show(&if stream.is_some() { piece.clone() } else { format!("{id} ") })?;
            }
            text += &piece;
            if stop {
                stopped = true;
                break;
            }
        }
        if !stopped {
            let held = stream.map_or_else(String::new, |mut stream| stream.finish());
            let (held, stop) = stops.push(&held);
            let rest = if stop { held } else { held + &stops.finish() };
            if !self.json {
                show(&rest)?;
            }
            text += &rest;
        }

        let total = start.elapsed().as_secs_f64();
        let first = first.map_or(total, |first| first.as_secs_f64());
        let decode = if ids.len() > 1 { (ids.len() - 1) as f64 / (total - first).max(1e-9) } else { 0.0 };
        let seed = generation.seed();
        let why = match generation.stop() {
            _ if stopped => "stop",
            Some(Stop::End(_)) => "eos",
            _ => "length",
        };
        if self.json {
            let stats = json!({
                "prefill_tps": prompt.len() as f64 / first.max(1e-9),
                "decode_tps": decode,
                "load_ms": load_ms,
                "first_token_ms": first * 1e3,
            });
            let object = json!({
                "prompt_ids": prompt, "ids": ids, "text": text, "stop": why, "seed": seed, "stats": stats,
            });
            return Ok(output::json(&object)?);
        }
        show("\n")?;
        let full = if generation.stop() == Some(Stop::Context) { ", the context is full" } else { "" };
        eprintln!("[{} tokens, {decode:.1} tokens/s, seed {seed}, stopped by {why}{full}]", ids.len());
        Ok(())
    }
}

fn show(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}
