//! A vocabulary of its own for a new model: byte-level BPE, learned from the training text.

use crate::error::{Error, Result};
use crate::gguf::{Gguf, Strings, Writer};
use serde_json::Value as Json;
use std::path::Path;
use tokenizers::models::bpe::{BPE, BpeTrainerBuilder};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::tokenizer::{AddedToken, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer, Trainer};

/// Token 0: begins and ends documents.
const END: &str = "<|endoftext|>";
/// Every byte, and [`END`].
const LEAST: u32 = 257;

/// Learns a vocabulary of up to `size` tokens from a file of training data (of any kind: JSON's own marks are no part of it):
/// a GGUF without tensors, for [`NewModel::gguf`](super::NewModel::gguf). A small text may hold fewer.
///
/// # Errors
/// [`Error::Io`]; [`Error::Argument`] for a size below 257, which is every byte and one control token;
/// [`Error::Tokenizer`] for what the learning itself reports.
pub fn train_vocabulary(path: &Path, size: u32) -> Result<Gguf> {
    if size < LEAST {
        let (what, expected) =
            ("tokens of a vocabulary".into(), format!("{LEAST} or more: every byte, and one to end texts"));
        return Err(Error::Argument { what, expected, got: size.to_string() });
    }
    let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
    let failed =
        |error: tokenizers::Error| Error::Tokenizer { what: format!("a vocabulary cannot be learned: {error}") };
    let mut trainer = BpeTrainerBuilder::new()
        .vocab_size(size as usize)
        .show_progress(false)
        .special_tokens(vec![AddedToken::from(END, true)])
        .initial_alphabet(ByteLevel::alphabet().into_iter().collect())
        .build();
    let cut = ByteLevel::new(false, false, true); // as GPT-2 cuts texts into words
    let words = |piece: &str| {
        let mut pieces = PreTokenizedString::from(piece);
        cut.pre_tokenize(&mut pieces)?;
        let splits = pieces.get_splits(OffsetReferential::Normalized, OffsetType::None);
        Ok(splits.into_iter().map(|(word, ..)| word.to_string()).collect())
    };
    trainer.feed(texts(&text).iter(), words).map_err(failed)?;
    let mut bpe = BPE::default();
    trainer.train(&mut bpe).map_err(failed)?;
    gguf(&bpe)
}

/// The texts of a file: those in its JSON lines, else its lines themselves, ends included.
fn texts(file: &str) -> Vec<String> {
    let mut all = Vec::new();
    for line in file.split_inclusive('\n') {
        match serde_json::from_str::<Json>(line) {
            Ok(json @ Json::Object(_)) => collect(&json, &mut all),
            _ => all.push(line.to_string()),
        }
    }
    all
}

/// Strings among a JSON value's values; of messages, what was said and not by whom.
fn collect(json: &Json, into: &mut Vec<String>) {
    match json {
        Json::String(text) => into.push(text.clone()),
        Json::Array(list) => list.iter().for_each(|json| collect(json, into)),
        Json::Object(map) => map.iter().filter(|(key, _)| *key != "role").for_each(|(_, json)| collect(json, into)),
        _ => {}
    }
}

/// The vocabulary as GGUF has it.
fn gguf(bpe: &BPE) -> Result<Gguf> {
    // the model keeps its merges to itself, but for its JSON
    let json = serde_json::to_value(bpe).map_err(|error| Error::Tokenizer { what: error.to_string() })?;
    let mut tokens: Vec<(u64, &String)> =
        json["vocab"].as_object().into_iter().flatten().filter_map(|(token, id)| Some((id.as_u64()?, token))).collect();
    tokens.sort_unstable();
    let merges = json["merges"].as_array().into_iter().flatten().map(|merge| match merge {
        Json::Array(pair) => pair.iter().filter_map(Json::as_str).collect::<Vec<_>>().join(" "),
        merge => merge.as_str().unwrap_or_default().to_string(),
    });
    let mut writer = Writer::new();
    writer
        .set("general.architecture", "llama")
        .set("tokenizer.ggml.model", "gpt2")
        .set("tokenizer.ggml.pre", "gpt-2")
        .set("tokenizer.ggml.tokens", tokens.iter().map(|(_, token)| token).collect::<Strings>())
        .set(
            "tokenizer.ggml.token_type",
            tokens.iter().map(|(id, _)| if *id == 0 { 3 } else { 1 }).collect::<Vec<i32>>(),
        )
        .set("tokenizer.ggml.merges", merges.collect::<Strings>())
        .set("tokenizer.ggml.bos_token_id", 0u32)
        .set("tokenizer.ggml.eos_token_id", 0u32)
        .set("tokenizer.ggml.add_bos_token", true);
    Gguf::from_bytes(writer.to_bytes()?)
}
