//! The prompt: a text, a file, or token ids; and how its tokens are chosen.

use super::Failure;
use super::open::ModelFile;
use clap::Args;
use peregrine::sampling::StopStrings;
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::{Error, Sampler, Sampling};
use std::path::PathBuf;

#[derive(Args)]
#[command(next_help_heading = "Prompt")]
pub struct PromptArgs {
    /// The text, taken as it is unless --escapes is given
    #[arg(short, long, value_name = "TEXT", group = "source")]
    prompt: Option<String>,
    /// Read the text from a file (its last line break is dropped)
    #[arg(short, long, value_name = "FILE", group = "source")]
    file: Option<PathBuf>,
    /// Token ids instead of a text: "1 2 3" or "1,2,3"; nothing is added to them
    #[arg(long, value_name = "IDS", group = "source")]
    prompt_ids: Option<String>,
    /// Understand \n, \t, \r, \\ and \xHH in the text
    #[arg(short, long)]
    escapes: bool,
    /// Add no BOS, and take the texts of control tokens as plain text
    #[arg(long)]
    no_special: bool,
}

/// What was given, and the tokens that it is for the model.
pub struct Prompt {
    /// None where token ids were given.
    pub text: Option<Vec<u8>>,
    pub ids: Vec<u32>,
    /// None where token ids were given and the file has no vocabulary: then ids are all that there is.
    pub tokenizer: Option<Tokenizer>,
}

impl PromptArgs {
    /// The prompt for a model; `default` is its text where none was given.
    pub fn read(&self, file: &ModelFile, default: Option<&str>) -> Result<Prompt, Failure> {
        if let Some(list) = &self.prompt_ids {
            let tokenizer = Tokenizer::from_gguf(&file.gguf).ok().filter(|tokenizer| tokenizer.vocab_size() > 0);
            return Ok(Prompt { text: None, ids: parse_ids(list)?, tokenizer });
        }
        let text = self.text(default)?;
        let tokenizer = file.tokenizer()?;
        let options = Encode { add_special: !self.no_special, parse_special: !self.no_special, literal: &[] };
        let ids = tokenizer.encode(&text, &options)?;
        if ids.is_empty() {
            let why = if self.no_special { "--no-special adds none" } else { "this model's vocabulary adds none" };
            return Err(missing(&format!("a text, or a BOS token before an empty one ({why})")).into());
        }
        Ok(Prompt { text: Some(text), ids, tokenizer: Some(tokenizer) })
    }

    fn text(&self, default: Option<&str>) -> Result<Vec<u8>, Failure> {
        let text = match (&self.prompt, &self.file, default) {
            (Some(text), _, _) => text.clone().into_bytes(),
            (None, Some(path), _) => {
                let mut bytes = std::fs::read(path).map_err(|source| Error::Io { path: path.clone(), source })?;
                if bytes.last() == Some(&b'\n') {
                    bytes.pop();
                }
                bytes
            }
            (None, None, Some(default)) => default.as_bytes().to_vec(),
            (None, None, None) => {
                return Err(missing("a text (-p), a file (-f) or token ids (--prompt-ids)").into());
            }
        };
        if self.escapes { unescape(&text) } else { Ok(text) }
    }
}

fn missing(expected: &str) -> Error {
    Error::Argument { what: "prompt".into(), expected: expected.into(), got: "nothing".into() }
}

/// "1 2 3" or "1, 2, 3".
pub fn parse_ids(list: &str) -> Result<Vec<u32>, Failure> {
    let listed = list.split(',').flat_map(|part| match part.split_whitespace().collect::<Vec<_>>() {
        words if words.is_empty() && list.contains(',') => vec![""], // nothing between two commas
        words => words,
    });
    let ids: Vec<u32> = listed
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
        let hex = |digits: [u8; 2]| {
            let [high, low] = digits.map(|digit| (digit as char).to_digit(16));
            Some((high? * 16 + low?) as u8)
        };
        let (known, length) = match rest {
            [b'n', ..] => (Some(b'\n'), 1),
            [b't', ..] => (Some(b'\t'), 1),
            [b'r', ..] => (Some(b'\r'), 1),
            [b'\\', ..] => (Some(b'\\'), 1),
            [b'x', a, b, ..] => (hex([*a, *b]), 3),
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

/// What a flag's help calls its default is the library's.
fn usual() -> Sampling {
    Sampling::default()
}

#[derive(Args, Clone)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// 0 takes the most likely token; 1 leaves the model's probabilities as they are
    #[arg(long = "temp", value_name = "T", default_value_t = usual().temperature)]
    temperature: f32,
    /// Keep the K most likely tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = usual().top_k)]
    top_k: u32,
    /// Keep the most likely tokens that together reach P; 1 keeps all
    #[arg(long, value_name = "P", default_value_t = usual().top_p)]
    top_p: f32,
    /// Drop tokens less likely than P times the most likely one; 0 keeps all
    #[arg(long, value_name = "P", default_value_t = usual().min_p)]
    min_p: f32,
    /// Make the tokens of the last --repeat-last-n less likely; 1 is off
    #[arg(long, value_name = "R", default_value_t = usual().repeat_penalty)]
    repeat_penalty: f32,
    /// How many of the last tokens, prompt and answer, the repeat penalty sees
    #[arg(long, value_name = "N", default_value_t = usual().repeat_last_n)]
    repeat_last_n: u32,
    /// The same seed gives the same answer [default: random; it is told]
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// Stop where this text comes, and do not show it; may be given several times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
}

impl SamplingArgs {
    /// Checked, so that a number out of range is told before a model is loaded.
    pub fn sampling(&self) -> Result<Sampling, Failure> {
        StopStrings::new(self.stop.clone())?;
        let &SamplingArgs { temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed, .. } = self;
        let sampling = Sampling { temperature, top_k, top_p, min_p, repeat_penalty, repeat_last_n, seed, ..usual() };
        Sampler::new(sampling.clone())?;
        Ok(sampling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        let cases = [
            (r"plain", Some(&b"plain"[..])),
            (r"a\nb\t\r\\", Some(b"a\nb\t\r\\")),
            (r"\x00\xfF", Some(b"\x00\xff")),
            ("é\\n", Some("é\n".as_bytes())),
            (r"\q", None),
            (r"\x0", None),
            (r"\xgg", None),
            (r"\x+1", None),
            ("\\", None),
        ];
        for (text, want) in cases {
            assert_eq!(unescape(text.as_bytes()).ok().as_deref(), want, "{text:?}");
        }
    }
}
