//! `bench`: tokens a second of a model on this machine, beside what the device could read.

use super::open::{self, RunArgs};
use super::{Failure, output};
use clap::Args;
use peregrine::bench::{median, read_bandwidth, speeds};
use peregrine::{Error, block_on};
use serde_json::json;
use std::path::PathBuf;

#[derive(Args)]
pub struct Bench {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// Tokens of the prompt
    #[arg(short = 'p', long, value_name = "N", default_value_t = 128)]
    prompt: u32,
    /// Tokens to decode
    #[arg(short = 'n', long, value_name = "N", default_value_t = 64)]
    tokens: u32,
    /// Measured runs, after one that warms up
    #[arg(short, long, value_name = "N", default_value_t = 3)]
    runs: u32,
    #[command(flatten)]
    run: RunArgs,
    /// Print one object
    #[arg(long)]
    json: bool,
}

impl Bench {
    pub fn run(mut self) -> Result<(), Failure> {
        let needed = self.prompt.saturating_add(self.tokens);
        if self.prompt == 0 || self.tokens == 0 || self.runs == 0 {
            let expected = "at least 1 each".into();
            return Err(Error::Argument { what: "-p, -n and --runs".into(), expected, got: "0".into() }.into());
        }
        let gguf = open::runnable(self.model.as_deref())?;
        self.run.ctx.get_or_insert(needed.max(512));
        let mut session = self.run.session(&gguf)?;
        let vocab = session.model().config().vocab_size;
        let prompt: Vec<u32> = (0..self.prompt).map(|i| i.wrapping_mul(2_654_435_761) % vocab).collect();
        let measured = block_on(speeds(&mut session, &prompt, self.tokens, self.runs))?;
        let bandwidth = block_on(read_bandwidth(session.model().gpu()))?;
        let (prefill, decode) = (median(&measured.prefill), median(&measured.decode));
        let plan = session.plan();
        let bytes = plan.weight_bytes();
        let dispatches = plan.steps.len() + 1; // and the choice of the token
        let read = decode * bytes as f64;
        let card = session.model().gpu().card();
        if self.json {
            return Ok(output::json(&json!({
                "device": card.name,
                "backend": format!("{:?}", card.backend),
                "driver": card.driver,
                "version": env!("CARGO_PKG_VERSION"),
                "prompt_tokens": self.prompt,
                "decoded_tokens": self.tokens,
                "prefill_tps": prefill,
                "decode_tps": decode,
                "prefill_runs": measured.prefill,
                "decode_runs": measured.decode,
                "dispatches_per_token": dispatches,
                "bytes_per_token": bytes,
                "read_bandwidth_gbps": bandwidth / 1e9,
                "bandwidth_fraction": read / bandwidth,
            }))?);
        }
        let spread = |runs: &[f64]| {
            let (low, high) = runs.iter().fold((f64::MAX, 0.0f64), |(low, high), v| (low.min(*v), high.max(*v)));
            format!("({low:.1} to {high:.1} in {} runs)", runs.len())
        };
        println!("device     {} ({:?}, {})", card.name, card.backend, card.driver);
        println!("prefill    {prefill:.1} tokens/s of {} tokens {}", self.prompt, spread(&measured.prefill));
        println!("decode     {decode:.1} tokens/s over {} tokens {}", self.tokens, spread(&measured.decode));
        println!("a token    {dispatches} dispatches, {} of weights", output::bytes(bytes));
        println!(
            "bandwidth  {:.1} of {:.1} GB/s that the device reads ({:.0} %)",
            read / 1e9,
            bandwidth / 1e9,
            100.0 * read / bandwidth
        );
        Ok(())
    }
}
