//! Byte-level BPE by merge rank, through the `tokenizers` crate: pre-tokenizing regexes, bytes as characters, merges.

use super::pre::Rule;
use super::vocab::{Kind, Vocabulary};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
use std::collections::HashSet;
use tokenizers::models::bpe::{BPE, Merges, Vocab};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::{PreTokenizerWrapper, SplitDelimiterBehavior, Tokenizer as Pipeline};

/// The regex engine gives up, without a word, on a match of this many characters of white space.
const LONGEST_SPACE: usize = 1_000_000;

pub(super) struct Bpe {
    pipeline: Pipeline,
    /// Ids from here on stand for bytes that the vocabulary lacks.
    no_token: u32,
}

fn broken(error: impl std::fmt::Display) -> Error {
    Error::Tokenizer { what: error.to_string() }
}

impl Bpe {
    pub fn from_gguf(gguf: &Gguf, vocab: &mut Vocabulary, rule: &Rule) -> Result<Bpe> {
        let key = "tokenizer.ggml.merges";
        let hint = "byte-level BPE cannot work without it; convert the original model again".into();
        let lines = gguf.strings(key)?.ok_or_else(|| Error::MissingKey { key: key.into(), hint })?;

        // Tokens that are not UTF-8 cannot come from text; they are only decoded. Control tokens are found before this.
        let mut texts = Vocab::default();
        for (id, text) in vocab.tokens().filter(|(id, _)| vocab.kind(*id) != Kind::Control) {
            let Ok(text) = std::str::from_utf8(text) else { continue };
            texts.entry(text.to_string()).or_insert(id);
        }
        // A byte without a token keeps its neighbours apart before it is left out.
        let no_token = vocab.len() as u32;
        for (c, byte) in ('!'..='\u{143}').filter_map(|c| Some((c, byte_of(c)?))) {
            texts.entry(c.to_string()).or_insert(no_token + byte as u32);
        }
        let mut merges = Merges::with_capacity(lines.len());
        let mut unusable = 0;
        let mut seen = HashSet::with_capacity(lines.len());
        for line in lines.iter().filter(|line| seen.insert(*line)) {
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
        Ok(Bpe { pipeline, no_token })
    }

    /// Each byte that is no UTF-8 counts as U+FFFD. A byte without a token is left out, with a warning.
    pub fn encode(&self, text: &[u8], ids: &mut Vec<u32>) -> Result<()> {
        let mut valid = String::with_capacity(text.len());
        for chunk in text.utf8_chunks() {
            valid.push_str(chunk.valid());
            chunk.invalid().iter().for_each(|_| valid.push('\u{fffd}'));
        }
        if valid.split(|c: char| !c.is_whitespace()).any(|space| space.len() >= LONGEST_SPACE) {
            let what = format!("the text holds more than {LONGEST_SPACE} bytes of white space in a row; shorten it");
            return Err(Error::Tokenizer { what });
        }
        let encoding = self.pipeline.encode_fast(valid, false).map_err(broken)?;
        let has_token = |id: &&u32| **id < self.no_token;
        if let Some(id) = encoding.get_ids().iter().find(|id| !has_token(id)) {
            log::warn!(
                "the vocabulary lacks bytes of the text (first 0x{:02X}): they are left out",
                id - self.no_token
            );
        }
        ids.extend(encoding.get_ids().iter().filter(has_token));
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
