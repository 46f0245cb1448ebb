//! Training data: a file of text, documents, chats or prompts with completions becomes sequences.

use super::Sequence;
use super::reader::Reader;
use crate::chat::{ChatTemplate, DateTime};
use crate::error::{Error, Result};
use crate::tokenizer::Tokenizer;
use serde_json::{Map, Value as Json};
use std::io::BufRead;
use std::path::Path;

/// What a file of training data holds. All but [`DataKind::Text`] is JSONL: one JSON object a line, whose other keys are of no
/// account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DataKind {
    /// Plain text: the file is one document, with BOS and EOS where the vocabulary asks for them. Every token is learned.
    Text,
    /// `{"text": ".."}`: a document a line, each with an EOS at its end (if there is one). Every token is learned.
    Documents,
    /// `{"messages": [{"role": "..", "content": ".."}, ..]}`, and perhaps `"tools"`: a conversation a line, through the chat
    /// template. The assistant's answers are learned, with the token that ends each.
    Chats,
    /// `{"prompt": "..", "completion": ".."}`: the completion is learned, and an EOS at its end.
    Completions,
}

impl DataKind {
    pub(super) const JSONL: [DataKind; 3] = [DataKind::Documents, DataKind::Chats, DataKind::Completions];

    /// "text", "documents", "chats" or "completions".
    pub fn name(self) -> &'static str {
        match self {
            DataKind::Text => "text",
            DataKind::Documents => "documents",
            DataKind::Chats => "chats",
            DataKind::Completions => "completions",
        }
    }

    /// What a line of the kind looks like.
    pub(super) fn shape(self) -> &'static str {
        match self {
            DataKind::Text => "plain text",
            DataKind::Documents => r#"{"text": ".."}"#,
            DataKind::Chats => r#"{"messages": [{"role": "..", "content": ".."}, ..]}"#,
            DataKind::Completions => r#"{"prompt": "..", "completion": ".."}"#,
        }
    }

    fn keys(self) -> &'static [&'static str] {
        match self {
            DataKind::Text => &[],
            DataKind::Documents => &["text"],
            DataKind::Chats => &["messages"],
            DataKind::Completions => &["prompt", "completion"],
        }
    }

    pub(super) fn is_of(self, object: &Map<String, Json>) -> bool {
        self.keys().iter().all(|&key| object.contains_key(key))
    }
}

/// How a file becomes sequences.
#[derive(Debug, Clone, Copy)]
pub struct DataOptions {
    /// None finds it out: a `.txt` file is text, a `.jsonl`, `.ndjson` or `.json` file is JSONL, and another one is JSONL if its
    /// first line that is not blank begins like an object. The keys of the first object tell the kind of all.
    pub kind: Option<DataKind>,
    /// Tokens of a sequence at most, 2 or more.
    pub context: u32,
    /// Lay documents one after another and cut the row into sequences of `context` tokens; false makes each document a sequence.
    /// (Text is always cut so, chats and completions never.)
    pub pack: bool,
    /// What a chat template that asks for the date is told. It is a fixed date unless you give one, so that the same file always
    /// gives the same sequences.
    pub now: DateTime,
}

impl Default for DataOptions {
    fn default() -> DataOptions {
        // The date that Llama 3's template itself falls back to.
        let now = DateTime { year: 2024, month: 7, day: 26, hour: 0, minute: 0 };
        DataOptions { kind: None, context: 512, pack: true, now }
    }
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// What the file was read as.
    pub kind: DataKind,
    pub sequences: usize,
    /// Of all sequences together.
    pub tokens: u64,
    /// Labels that count: tokens that are learned.
    pub counted_labels: u64,
    /// Sequences that were longer than the context: what lies beyond it is not learned. None where sequences are packed.
    pub cut: usize,
    /// Sequences left out, as none of their labels counts: chats without an answer, or with none within the context.
    pub dropped: usize,
}

/// The sequences of a file; see [`DataKind`] for what it may hold. `template` is only asked for chats.
///
/// In packed sequences the label of the last token is the first token of the next sequence, so that each token is learned once;
/// the row's last token has no label, and a last sequence of only that one is left out. Other sequences end with their last
/// label that counts. Line ends `\r\n` become `\n`, a byte order mark goes, and control tokens are found in texts and prompts
/// as `run` finds them, in chats as `chat` does: what stands in a message stays plain text.
///
/// # Errors
/// [`Error::Io`]; [`Error::Argument`] for a context below 2; [`Error::Data`] for a line that is not as its kind asks, that is
/// not of the first line's kind, or that the tokenizer or the chat template refuses; [`Error::InFile`] for a file in which
/// nothing is to be learned.
pub fn read_data(
    path: &Path,
    options: &DataOptions,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
) -> Result<(Vec<Sequence>, Report)> {
    let file = std::fs::File::open(path).map_err(|source| Error::Io { path: path.into(), source })?;
    read_data_from(path, std::io::BufReader::new(file), options, tokenizer, template)
}

/// As [`read_data`], from any source; `path` is what errors call it, and its extension may tell the kind.
///
/// # Errors
/// Those of [`read_data`].
pub fn read_data_from(
    path: &Path,
    mut source: impl BufRead,
    options: &DataOptions,
    tokenizer: &Tokenizer,
    template: Option<&ChatTemplate>,
) -> Result<(Vec<Sequence>, Report)> {
    if options.context < 2 {
        let (what, expected) = ("tokens of a sequence".into(), "2 or more".into());
        return Err(Error::Argument { what, expected, got: options.context.to_string() });
    }
    let mut reader = Reader::new(path, options, tokenizer, template);
    let mut line = Vec::new();
    while source.read_until(b'\n', &mut line).map_err(|source| Error::Io { path: path.into(), source })? > 0 {
        reader.take(&line)?;
        line.clear();
    }
    reader.finish()
}
