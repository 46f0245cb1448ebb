//! Finds the texts of control and user-defined tokens in a text, before anything else is done with it.

use super::vocab::{Kind, Vocabulary};
use std::ops::Range;

struct Entry {
    text: Vec<u8>,
    id: u32,
    /// Found only when special tokens are parsed; a user-defined one always is.
    control: bool,
    /// Takes the white space that follows, as Phi-3's tokens do.
    takes_space: bool,
}

pub(super) struct Special {
    entries: Vec<Entry>, // longest first
}

pub(super) enum Part<'a> {
    Token(u32),
    Text(&'a [u8]),
}

impl Special {
    pub fn new(vocab: &Vocabulary) -> Special {
        // Phi-3's own tokens swallow the space behind them; the tokens that it shares with Llama 2 do not.
        let is_phi3 = vocab.id_of(b"<|assistant|>").is_some() && vocab.id_of(b"<|placeholder1|>").is_some();
        let keeps_space: [&[u8]; 3] = [b"<unk>", b"<s>", b"<|endoftext|>"];
        let mut entries: Vec<Entry> = vocab
            .tokens()
            .filter(|(id, text)| {
                !text.is_empty() && matches!(vocab.kind(*id), Kind::Control | Kind::Unknown | Kind::UserDefined)
            })
            .map(|(id, text)| Entry {
                text: text.to_vec(),
                id,
                control: vocab.kind(id) != Kind::UserDefined,
                takes_space: is_phi3 && !keeps_space.contains(&text),
            })
            .collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.text.len()));
        Special { entries }
    }

    pub fn texts(&self) -> Vec<String> {
        self.entries.iter().filter_map(|entry| String::from_utf8(entry.text.clone()).ok()).collect()
    }

    /// Cuts a text at its special tokens: wherever the longest one stands, then the next longest in what is left. With
    /// each part comes the byte where it begins.
    pub fn split<'a>(&self, text: &'a [u8], parse_special: bool, literal: &[Range<usize>]) -> Vec<(usize, Part<'a>)> {
        let mut parts: Vec<(usize, Part<'a>)> = Vec::new();
        if !text.is_empty() {
            parts.push((0, Part::Text(text)));
        }
        for entry in self.entries.iter().filter(|entry| parse_special || !entry.control) {
            let mut cut = Vec::with_capacity(parts.len());
            for (mut start, part) in parts {
                let Part::Text(mut rest) = part else {
                    cut.push((start, part));
                    continue;
                };
                while let Some(at) = entry.find(rest, start, literal) {
                    if at > 0 {
                        cut.push((start, Part::Text(&rest[..at])));
                    }
                    cut.push((start + at, Part::Token(entry.id)));
                    let mut end = at + entry.text.len();
                    if entry.takes_space {
                        end += rest[end..].iter().take_while(|byte| matches!(byte, b' ' | b'\t'..=b'\r')).count();
                    }
                    (start, rest) = (start + end, &rest[end..]);
                }
                if !rest.is_empty() {
                    cut.push((start, Part::Text(rest)));
                }
            }
            parts = cut;
        }
        parts
    }
}

impl Entry {
    /// Where the text stands first in `piece`, which begins at `start` of the whole; not inside a literal range.
    fn find(&self, piece: &[u8], start: usize, literal: &[Range<usize>]) -> Option<usize> {
        let mut from = 0;
        loop {
            let at = from + memmem(&piece[from..], &self.text)?;
            let (first, last) = (start + at, start + at + self.text.len());
            if !self.control || !literal.iter().any(|range| first < range.end && range.start < last) {
                return Some(at);
            }
            from = at + 1;
        }
    }
}

fn memmem(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|&byte| byte == needle[0]) {
        if haystack[from + at..].starts_with(needle) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}
