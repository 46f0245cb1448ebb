//! The vocabulary: token texts, kinds, and the ids that mean something.

use crate::error::{Error, Result};
use crate::gguf::{Array, Gguf, Strings, Value};
use std::collections::HashMap;

/// GGUF's token types.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Normal,
    Unknown,
    Control,
    UserDefined,
    Unused,
    Byte,
}

/// Texts that end an answer in some model family or other: files often name only one of theirs. The last ones pad a text,
/// or begin another file or repository in code models.
const END_TEXTS: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<turn|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eom_id|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
    "</s>",
    "<eos>",
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

#[derive(Default)]
pub(super) struct Vocabulary {
    tokens: Strings,
    kinds: Vec<Kind>, // empty: all normal
    ids: HashMap<Vec<u8>, u32>,
    pub bos: Option<u32>,
    pub eos: Option<u32>,
    pub unknown: Option<u32>,
    pub adds_bos: bool,
    pub adds_eos: bool,
    pub end_ids: Vec<u32>,
    pub warnings: Vec<String>,
}

impl Vocabulary {
    /// `adds_bos` is what the tokenizer family does where the file does not say.
    pub fn from_gguf(gguf: &Gguf, is_spm: bool, adds_bos: bool) -> Result<Vocabulary> {
        let key = "tokenizer.ggml.tokens";
        let hint = "the file holds no vocabulary; convert the original model again".into();
        let tokens = gguf.strings(key)?.ok_or_else(|| Error::MissingKey { key: key.into(), hint })?.clone();
        let mut ids = HashMap::with_capacity(tokens.len());
        for (id, token) in tokens.iter().enumerate() {
            ids.entry(token.to_vec()).or_insert(id as u32); // of two with the same text the first
        }
        let mut vocab = Vocabulary { kinds: kinds(gguf, tokens.len())?, tokens, ids, ..Default::default() };
        if vocab.kinds.is_empty() {
            vocab.guess_kinds(is_spm);
        }

        // SentencePiece files that name no ids mean these; a BPE file means none.
        let usual = |id: u32| (is_spm && (id as usize) < vocab.tokens.len()).then_some(id);
        let (bos, eos, unknown) = (usual(1), usual(2), usual(0));
        vocab.bos = vocab.special(gguf, "bos", bos)?;
        vocab.eos = vocab.special(gguf, "eos", eos)?;
        vocab.unknown = vocab.special(gguf, "unknown", unknown)?;
        vocab.adds_bos = gguf.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos);
        vocab.adds_eos = gguf.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);

        for (name, id, adds) in [("BOS", vocab.bos, vocab.adds_bos), ("EOS", vocab.eos, vocab.adds_eos)] {
            if adds && id.is_none() {
                vocab
                    .warnings
                    .push(format!("the model wants {name} added to a text, but the file names none: none is added"));
            }
        }

        vocab.end_ids.extend(vocab.eos);
        for name in ["eot", "eom", "fim_pad", "fim_rep", "fim_sep"] {
            let id = vocab.special(gguf, name, None)?;
            vocab.end_ids.extend(id);
        }
        for text in END_TEXTS {
            let Some(id) = vocab.id_of(text.as_bytes()) else { continue };
            vocab.end_ids.push(id);
            // a file without token types, or with wrong ones: such a text is a control token all the same
            vocab.set_kind(id, Kind::Control);
        }
        // where answers have parts, <|end|> ends only a part
        let has = |text: &str| vocab.ids.contains_key(text.as_bytes());
        if (has("<|return|>") && has("<|call|>")) || (has("<|calls|>") && has("<|flush|>")) {
            let part = vocab.id_of(b"<|end|>");
            vocab.end_ids.retain(|id| Some(*id) != part);
        }
        vocab.end_ids.sort_unstable();
        vocab.end_ids.dedup();
        Ok(vocab)
    }

    fn special(&mut self, gguf: &Gguf, name: &str, usual: Option<u32>) -> Result<Option<u32>> {
        let key = format!("tokenizer.ggml.{name}_token_id");
        let Some(value) = gguf.get(&key) else { return Ok(usual) };
        match value.as_u64() {
            Some(id) if id < self.tokens.len() as u64 => Ok(Some(id as u32)),
            _ => {
                let got = value.as_u64().map_or_else(|| value.kind(), |id| id.to_string());
                let text = format!("{key} is {got}, outside the vocabulary of {}: it is ignored", self.tokens.len());
                self.warnings.push(text);
                Ok(usual)
            }
        }
    }

    /// A file without token types: all are ordinary, but SentencePiece's bytes are known by their texts.
    fn guess_kinds(&mut self, is_spm: bool) {
        self.warnings
            .push("tokenizer.ggml.token_type is missing: all tokens but the well-known are taken as text".into());
        for byte in (0..=255).filter(|_| is_spm) {
            if let Some(id) = self.id_of(byte_text(byte).as_bytes()) {
                self.set_kind(id, Kind::Byte);
            }
        }
    }

    fn set_kind(&mut self, id: u32, kind: Kind) {
        self.kinds.resize(self.tokens.len(), Kind::Normal);
        self.kinds[id as usize] = kind;
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The token's text; empty outside the vocabulary.
    pub fn text(&self, id: u32) -> &[u8] {
        self.tokens.get(id as usize).unwrap_or_default()
    }

    pub fn kind(&self, id: u32) -> Kind {
        self.kinds.get(id as usize).copied().unwrap_or(Kind::Normal)
    }

    pub fn id_of(&self, text: &[u8]) -> Option<u32> {
        self.ids.get(text).copied()
    }

    pub fn tokens(&self) -> impl Iterator<Item = (u32, &[u8])> {
        self.tokens.iter().enumerate().map(|(id, text)| (id as u32, text))
    }
}

/// The text of a byte's token in SentencePiece vocabularies.
pub(super) fn byte_text(byte: u8) -> String {
    format!("<0x{byte:02X}>")
}

fn kinds(gguf: &Gguf, tokens: usize) -> Result<Vec<Kind>> {
    let key = "tokenizer.ggml.token_type";
    let Some(value) = gguf.get(key) else { return Ok(Vec::new()) };
    let wrong = |got: String| Error::Key { key: key.into(), expected: format!("an array of {tokens} integers"), got };
    let Value::Array(array) = value else { return Err(wrong(value.kind())) };
    if array.len() != tokens || matches!(array, Array::String(_) | Array::Array(_)) {
        return Err(wrong(value.kind()));
    }
    let kind = |i: usize| match array.get(i).and_then(|value| value.as_u64()) {
        Some(2) => Kind::Unknown,
        Some(3) => Kind::Control,
        Some(4) => Kind::UserDefined,
        Some(5) => Kind::Unused,
        Some(6) => Kind::Byte,
        _ => Kind::Normal,
    };
    Ok((0..tokens).map(kind).collect())
}
