//! SentencePiece BPE: neighbours are joined as long as the result is a token, the highest score first, the leftmost
//! among equals. The `tokenizers` crate joins by rank, which cannot express equal scores, so this is our own.

use super::vocab::{Kind, Vocabulary, byte_text};
use crate::error::{Error, Result};
use crate::gguf::{Array, Gguf, Value};
use std::collections::BinaryHeap;

/// What SentencePiece writes for a space.
const SPACE: &[u8] = "\u{2581}".as_bytes();

pub(super) struct Spm {
    scores: Vec<f32>, // empty: all equal
    /// Put a space before a text at its start and after special tokens.
    pub space_prefix: bool,
    bytes: Vec<Option<u32>>, // [256]: the token of each byte
}

impl Spm {
    pub fn from_gguf(gguf: &Gguf, vocab: &mut Vocabulary) -> Result<Spm> {
        let key = "tokenizer.ggml.scores";
        let scores = match gguf.get(key) {
            None => {
                let text = format!("{key} is missing: words are cut otherwise than the model learned");
                vocab.warnings.push(text);
                Vec::new()
            }
            Some(Value::Array(Array::F32(scores))) if scores.len() == vocab.len() => {
                scores.iter().map(|score| score + 0.0).collect() // -0 is 0
            }
            Some(Value::Array(Array::I32(scores))) if scores.len() == vocab.len() => {
                scores.iter().map(|&score| score as f32).collect()
            }
            Some(other) => {
                let expected = format!("an array of {} f32", vocab.len());
                return Err(Error::Key { key: key.into(), expected, got: other.kind() });
            }
        };
        let byte = |byte: u8| vocab.id_of(byte_text(byte).as_bytes()).or_else(|| vocab.id_of(&[byte]));
        Ok(Spm {
            scores,
            space_prefix: gguf.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(true),
            bytes: (0..=255).map(byte).collect(),
        })
    }

    fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }

    pub fn encode(&self, text: &[u8], after_special: bool, vocab: &Vocabulary, ids: &mut Vec<u32>) -> Result<()> {
        let mut escaped = Vec::with_capacity(text.len() + text.len() / 4);
        if self.space_prefix && after_special {
            escaped.extend_from_slice(SPACE);
        }
        for &byte in text {
            if byte == b' ' { escaped.extend_from_slice(SPACE) } else { escaped.push(byte) }
        }

        let mut symbols = symbols(&escaped);
        let mut queue = BinaryHeap::new();
        for right in 1..symbols.len() {
            self.consider(&escaped, &symbols, right - 1, right, vocab, &mut queue);
        }
        while let Some(Pair { left, right, len, .. }) = queue.pop() {
            // a pair whose parts were joined with others meanwhile is void
            if symbols[left].len == 0 || symbols[right].len == 0 || symbols[left].len + symbols[right].len != len {
                continue;
            }
            symbols[left].len = len;
            symbols[right].len = 0;
            let next = symbols[right].next;
            symbols[left].next = next;
            if next < symbols.len() {
                symbols[next].previous = left;
                self.consider(&escaped, &symbols, left, next, vocab, &mut queue);
            }
            let previous = symbols[left].previous;
            if previous < symbols.len() {
                self.consider(&escaped, &symbols, previous, left, vocab, &mut queue);
            }
        }

        let mut at = 0;
        while at < symbols.len() {
            let text = &escaped[symbols[at].start..][..symbols[at].len];
            match token(text, vocab) {
                Some(id) => ids.push(id),
                None => self.encode_bytes(text, vocab, ids)?,
            }
            at = symbols[at].next;
        }
        Ok(())
    }

    fn encode_bytes(&self, text: &[u8], vocab: &Vocabulary, ids: &mut Vec<u32>) -> Result<()> {
        for &byte in text {
            let id = self.bytes[byte as usize].or(vocab.unknown).ok_or_else(|| Error::Tokenizer {
                what: format!("byte 0x{byte:02X} has no token, and the vocabulary has none for unknown text"),
            })?;
            ids.push(id);
        }
        Ok(())
    }

    fn consider(
        &self,
        text: &[u8],
        symbols: &[Symbol],
        left: usize,
        right: usize,
        vocab: &Vocabulary,
        queue: &mut BinaryHeap<Pair>,
    ) {
        let len = symbols[left].len + symbols[right].len;
        if let Some(id) = token(&text[symbols[left].start..][..len], vocab) {
            queue.push(Pair { score: self.score(id), left, right, len });
        }
    }
}

/// The token of a piece of text. A control token is never what a text spells: those are found before this.
fn token(text: &[u8], vocab: &Vocabulary) -> Option<u32> {
    vocab.id_of(text).filter(|&id| vocab.kind(id) != Kind::Control)
}

/// A piece of the text; joined pieces have no length and are skipped through `next`.
struct Symbol {
    start: usize,
    len: usize,
    previous: usize, // usize::MAX: none
    next: usize,     // the number of symbols: none
}

/// One symbol a character; of bytes that are no UTF-8, as many as the first one promises and the text has.
fn symbols(text: &[u8]) -> Vec<Symbol> {
    let mut symbols = Vec::new();
    let mut start = 0;
    while start < text.len() {
        let promised = match text[start] {
            0xc0..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xff => 4,
            _ => 1,
        };
        let len = promised.min(text.len() - start);
        let i = symbols.len();
        symbols.push(Symbol { start, len, previous: i.wrapping_sub(1), next: i + 1 });
        start += len;
    }
    symbols
}

struct Pair {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Pair {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Pair {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Pair {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pair {}

/// The byte of "<0x0A>".
pub(super) fn byte_of(text: &[u8]) -> Option<u8> {
    let hex = text.strip_prefix(b"<0x")?.strip_suffix(b">")?;
    u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok()
}

/// The token's text with real spaces.
pub(super) fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some(&byte) = rest.first() {
        match rest.strip_prefix(SPACE) {
            Some(after) => {
                out.push(b' ');
                rest = after;
            }
            None => {
                out.push(byte);
                rest = &rest[1..];
            }
        }
    }
    out
}
