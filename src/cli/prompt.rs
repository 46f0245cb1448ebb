//! The prompt: a text, a file, or token ids; and how its tokens are chosen.

use super::Failure;
use clap::Args;
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::{Error, Gguf, Sampling};
use std::path::PathBuf;

#[derive(Args)]
pub struct PromptArgs {
    /// The text, taken as it is unless --escapes is given
    #[arg(short, long, value_name = "TEXT", group = "source")]
    pub prompt: Option<String>,
    /// Read the text from a file (its last line break is dropped)
    #[arg(short, long, value_name = "FILE", group = "source")]
    pub file: Option<PathBuf>,
    /// Token ids instead of a text: "1 2 3" or "1,2,3"; nothing is added to them
    #[arg(long, value_name = "IDS", group = "source")]
    pub prompt_ids: Option<String>,
    /// Understand \n, \t, \r, \\ and \xHH in the text
    #[arg(short, long)]
    pub escapes: bool,
    /// Add no BOS, and take the texts of control tokens as plain text
    #[arg(long)]
    pub no_special: bool,
}

impl PromptArgs {
    /// The prompt's text, if it is one.
    pub fn text(&self, default: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
        let text = match (&self.prompt, &self.file) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(path)) => {
                let mut bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.clone(), source })?;
                if bytes.last() == Some(&b'\n') {
                    bytes.pop();
                }
                Some(bytes)
            }
            (None, None) => default.map(|text| text.as_bytes().to_vec()),
        };
        text.map(|text| if self.escapes { unescape(&text) } else { Ok(text) }).transpose()
    }

    /// The prompt's tokens. `tokenizer` is only opened for a text, so that files without a vocabulary work with ids.
    pub fn ids(&self, gguf: &Gguf, default: Option<&str>) -> Result<Vec<u32>, Failure> {
        if let Some(list) = &self.prompt_ids {
            return parse_ids(list);
        }
        let argument = |expected: &str| Error::Argument {
            what: "prompt".into(),
            expected: expected.into(),
            got: "nothing".into(),
        };
        let Some(text) = self.text(default)? else {
            return Err(argument("a text (-p), a file (-f) or token ids (--prompt-ids)").into());
        };
        let options = Encode { add_special: !self.no_special, parse_special: !self.no_special, literal: &[] };
        let ids = Tokenizer::from_gguf(gguf)?.encode(&text, &options)?;
        if ids.is_empty() {
            return Err(argument("at least one token; the text is empty and this model adds no BOS").into());
        }
        Ok(ids)
    }
}

/// "1 2 3" or "1, 2, 3".
pub fn parse_ids(list: &str) -> Result<Vec<u32>, Failure> {
    let words = list.split([' ', ',', '\n', '\t']).filter(|word| !word.is_empty());
    let ids: Vec<u32> = words
        .map(|word| {
            word.parse().map_err(|_| Error::Argument {
                what: "token ids".into(),
                expected: "whole numbers separated by spaces or commas".into(),
                got: format!("{word:?}"),
            })
        })
        .collect::<Result<_, _>>()?;
    if ids.is_empty() {
        let expected = "at least one token id".into();
        return Err(Error::Argument { what: "token ids".into(), expected, got: "none".into() }.into());
    }
    Ok(ids)
}

fn unescape(text: &[u8]) -> Result<Vec<u8>, Failure> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&byte, after)) = rest.split_first() {
        rest = after;
        if byte != b'\\' {
            out.push(byte);
            continue;
        }
        let hex = |digits: &[u8]| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok();
        let (known, length) = match rest {
            [b'n', ..] => (Some(b'\n'), 1),
            [b't', ..] => (Some(b'\t'), 1),
            [b'r', ..] => (Some(b'\r'), 1),
            [b'\\', ..] => (Some(b'\\'), 1),
            [b'x', a, b, ..] => (hex(&[*a, *b]), 3),
            _ => (None, 0),
        };
        let Some(known) = known else {
            let got = format!("\\{}", String::from_utf8_lossy(&rest[..rest.len().min(3)]));
            let expected = r"\n, \t, \r, \\ or \xHH".into();
            return Err(Error::Argument { what: "escape in the text".into(), expected, got }.into());
        };
        out.push(known);
        rest = &rest[length..];
    }
    Ok(out)
}

#[derive(Args, Clone)]
pub struct SamplingArgs {
    /// 0 takes the most likely token; 1 leaves the model's probabilities as they are
    #[arg(long = "temp", value_name = "T", default_value_t = 0.7)]
    temperature: f32,
    /// Keep the K most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = 40)]
    top_k: u32,
    /// Keep the most likely tokens that together reach P; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = 0.95)]
    top_p: f32,
    /// Drop tokens less likely than P times the most likely one; 0 keeps all
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    min_p: f32,
    /// Make the tokens of the last --repeat-last-n less likely; 1 is off
    #[arg(long, value_name = "R", default_value_t = 1.0)]
    repeat_penalty: f32,
    /// How many of the last tokens, prompt and answer, the repeat penalty sees
    #[arg(long, value_name = "N", default_value_t = 64)]
    repeat_last_n: u32,
    /// The same seed gives the same answer [default: random; it is told]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
}

impl SamplingArgs {
    /// `barred` tokens are never chosen.
    pub fn sampling(&self, barred: Vec<u32>) -> Sampling {
        let &SamplingArgs { temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed } = self;
        Sampling {
            temperature,
            top_k,
            top_p,
            min_p,
            repeat_penalty,
            repeat_last_n,
            seed,
            barred,
            ..Sampling::default()
        }
    }
}
