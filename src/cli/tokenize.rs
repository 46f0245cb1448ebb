//! `tokenize` and `detokenize`. Both need no GPU and work on files that hold a vocabulary only.

use super::prompt::parse_ids;
use super::{Failure, open, output};
use clap::Args;
use peregrine::Error;
use peregrine::tokenizer::Encode;
use serde_json::json;
use std::io::{Read, Write};
use std::path::PathBuf;

#[derive(Args)]
pub struct Tokenize {
    /// A GGUF file
    model: PathBuf,
    /// The text; `-` reads standard input, byte for byte
    #[arg(allow_hyphen_values = true)]
    text: String,
    /// Add no BOS and EOS, and take the texts of control tokens as plain text
    #[arg(long)]
    no_special: bool,
    /// Print {"ids":[..],"tokens":[..]}
    #[arg(long)]
    json: bool,
}

impl Tokenize {
    pub fn run(self) -> Result<(), Failure> {
        let gguf = open::gguf(Some(&self.model))?;
        let tokenizer = open::tokenizer(&gguf)?;
        let text = read_if_dash(&self.text)?;
        let options = Encode { add_special: !self.no_special, parse_special: !self.no_special, literal: &[] };
        let ids = tokenizer.encode(&text, &options)?;
        let tokens: Vec<_> =
            ids.iter().map(|&id| String::from_utf8_lossy(&tokenizer.piece(id, true)).into_owned()).collect();
        if self.json {
            return Ok(output::json(&json!({ "ids": ids, "tokens": tokens }))?);
        }
        for (id, token) in ids.iter().zip(tokens) {
            println!("{id:>7}  {token:?}");
        }
        Ok(())
    }
}

#[derive(Args)]
pub struct Detokenize {
    /// A GGUF file
    model: PathBuf,
    /// Token ids: "1 2 3" or "1,2,3"; `-` reads them from standard input
    #[arg(allow_hyphen_values = true)]
    ids: String,
    /// Leave control tokens out
    #[arg(long)]
    no_special: bool,
    /// Print {"text":".."}
    #[arg(long)]
    json: bool,
}

impl Detokenize {
    pub fn run(self) -> Result<(), Failure> {
        let gguf = open::gguf(Some(&self.model))?;
        let tokenizer = open::tokenizer(&gguf)?;
        let ids = parse_ids(&String::from_utf8_lossy(&read_if_dash(&self.ids)?))?;
        if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.vocab_size()) {
            let expected = format!("below the vocabulary's {}", tokenizer.vocab_size());
            return Err(Error::Argument { what: "token id".into(), expected, got: id.to_string() }.into());
        }
        let bytes = tokenizer.decode_bytes(&ids, !self.no_special);
        if self.json {
            return Ok(output::json(&json!({ "text": String::from_utf8_lossy(&bytes) }))?);
        }
        let mut out = std::io::stdout().lock();
        out.write_all(&bytes)?;
        Ok(out.flush()?)
    }
}

fn read_if_dash(text: &str) -> std::io::Result<Vec<u8>> {
    if text != "-" {
        return Ok(text.as_bytes().to_vec());
    }
    let mut bytes = Vec::new();
    std::io::stdin().lock().read_to_end(&mut bytes)?;
    Ok(bytes)
}
