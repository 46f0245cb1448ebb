//! Byte-level BPE by merge rank, through the `tokenizers` crate: pre-tokenizing regexes, bytes as characters, merges.

use super::pre::Rule;
use super::vocab::Vocabulary;
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer as Pipeline};

pub(super) struct Bpe {
    pipeline: Pipeline,
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::Tokenizer { what: error.to_string() }
}

impl Bpe {
    pub fn from_gguf(gguf: &Gguf, vocab: &mut Vocabulary, rule: &Rule) -> Result<Bpe> {
        let key = "tokenizer.ggml.merges";
        let hint = "byte-level BPE cannot work without it; convert the original model again".into();
        let lines = gguf.strings(key)?.ok_or_else(|| Error::MissingKey { key: key.into(), hint })?;

        // Tokens that are not UTF-8 cannot come from text; they are only decoded.
        let mut texts = Vocab::default();
        for (id, text) in vocab.tokens() {
            if let Ok(text) = std::str::from_utf8(text) {
                texts.entry(text.to_string()).or_insert(id);
            }
        }
        let mut merges = Merges::with_capacity(lines.len());
        let mut unusable = 0;
        for line in lines.iter() {
            // the space that separates the two is not the first character, which may be one itself
            let pair = std::str::from_utf8(line).ok().and_then(|line| {
                let space = line.char_indices().skip(1).find(|(_, c)| *c == ' ')?.0;
                Some((&line[..space], &line[space + 1..]))
            });
            match pair {
                Some((a, b)) if [a, b, &format!("{a}{b}")].iter().all(|part| texts.contains_key(*part)) => {
                    merges.push((a.into(), b.into()));
                }
                _ => unusable += 1,
            }
        }
        if unusable > 0 {
            let text = format!(
                "{unusable} of {} merges name tokens that are not in the vocabulary; they are ignored",
                lines.len()
            );
            vocab.warnings.push(text);
        }
        let model =
            BPE::builder().vocab_and_merges(texts, merges).ignore_merges(rule.whole_words).build().map_err(broken)?;

        let mut steps: Vec<PreTokenizerWrapper> = Vec::new();
        for regex in rule.regexes {
            let pattern = SplitPattern::Regex(regex.to_string());
            steps.push(Split::new(pattern, SplitDelimiterBehavior::Isolated, false).map_err(broken)?.into());
        }
        steps.push(ByteLevel::new(false, false, false).into());
        let mut pipeline = Pipeline::new(model);
        pipeline.with_pre_tokenizer(Some(Sequence::new(steps)));
        Ok(Bpe { pipeline })
    }

    /// Each byte that is no UTF-8 counts as U+FFFD.
    pub fn encode(&self, text: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        let mut valid = String::with_capacity(text.len());
        for chunk in text.utf8_chunks() {
            valid.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|_| valid.push('\u{fffd}'));
        }
        let encoding = self.pipeline.encode_fast(valid, false).map_err(broken)?;
        ids.extend_from_slice(encoding.get_ids());
        Ok(())
    }
}

/// The bytes that a token's characters stand for; a character that stands for none is itself.
pub(super) fn bytes_of(text: &[u8]) -> Vec<u8> {
    let Ok(text) = std::str::from_utf8(text) else { return text.to_vec() };
    let mut bytes = Vec::with_capacity(text.len());
    for c in text.chars() {
        match byte_of(c) {
            Some(byte) => bytes.push(byte),
            None => bytes.extend(c.encode_utf8(&mut [0; 4]).as_bytes()),
        }
    }
    bytes
}

/// GPT-2's map: printable Latin-1 characters stand for themselves; the other 68 bytes are U+0100 and up, in order.
fn byte_of(c: char) -> Option<u8> {
    match c as u32 {
        c @ (0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff) => Some(c as u8),
        c @ 0x100..=0x120 => Some((c - 0x100) as u8),        // 0x00 to 0x20
        c @ 0x121..=0x142 => Some((c - 0x121 + 0x7f) as u8), // 0x7f to 0xa0
        0x143 => Some(0xad),
        _ => None,
    }
}
