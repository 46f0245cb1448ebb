//! Text to token ids and back, from the vocabulary in a GGUF file, as llama.cpp does it: no Unicode normalisation.

mod bpe;
mod pre;
mod special;
mod spm;
mod stream;
mod vocab;

pub use stream::TextStream;

use crate::error::{Error, Result};
use crate::gguf::Gguf;
use bpe::Bpe;
use special::Special;
use spm::Spm;
use std::ops::Range;
use vocab::{Kind, Vocabulary};

/// How a text becomes tokens.
#[derive(Debug, Clone, Copy)]
pub struct Encode<'a> {
    /// Add BOS and EOS where the model wants them.
    pub add_special: bool,
    /// Take the texts of control tokens ("<|im_end|>") for those tokens; else they are ordinary text.
    pub parse_special: bool,
    /// Byte ranges in which control tokens are ordinary text all the same: what users typed into a chat.
    pub literal: &'a [Range<usize>],
}

impl Default for Encode<'_> {
    fn default() -> Self {
        Encode { add_special: true, parse_special: true, literal: &[] }
    }
}

/// The vocabulary of one model and the way to apply it.
pub struct Tokenizer {
    vocab: Vocabulary,
    special: Special,
    model: Model,
}

enum Model {
    /// Byte-level BPE by merge rank (`gpt2`).
    Bpe(Box<Bpe>),
    /// SentencePiece BPE by score (`llama`).
    Spm(Spm),
    /// Ids only: the file has no vocabulary.
    None,
}

impl Tokenizer {
    /// # Errors
    /// [`Error::MissingKey`] and [`Error::Key`] for what the file lacks or has wrong; [`Error::Unsupported`] for a
    /// tokenizer or pre-tokenizer that we do not know: a wrong guess would give wrong tokens without a word.
    pub fn from_gguf(gguf: &Gguf) -> Result<Tokenizer> {
        let missing = |key: &str, hint: &str| Error::MissingKey { key: key.into(), hint: hint.into() };
        let name = gguf.str("tokenizer.ggml.model")?;
        if matches!(name, Some("none" | "no_vocab")) {
            let vocab = Vocabulary::default();
            return Ok(Tokenizer { special: Special::new(&vocab), vocab, model: Model::None });
        }
        let name =
            name.ok_or_else(|| missing("tokenizer.ggml.model", "the file holds no tokenizer; give token ids instead"))?;
        match name {
            "gpt2" | "llama" => {}
            "bert" | "t5" | "rwkv" | "plamo2" | "gemma4" => {
                let hint = "Supported are byte-level BPE (gpt2) and SentencePiece BPE (llama)".into();
                return Err(Error::Unsupported { what: format!("tokenizer {name:?}"), hint });
            }
            _ => {
                let hint =
                    "Known are gpt2 (byte-level BPE) and llama (SentencePiece BPE); a newer file needs a newer version"
                        .into();
                return Err(Error::Unsupported { what: format!("unknown tokenizer {name:?}"), hint });
            }
        }
        let is_spm = name == "llama";
        let pre = if is_spm { None } else { Some(pre::find(gguf)?) };
        let adds_bos = pre.as_ref().is_none_or(|pre| pre.adds_bos);
        let mut vocab = Vocabulary::from_gguf(gguf, is_spm, adds_bos)?;
        let model = match pre {
            None => Model::Spm(Spm::from_gguf(gguf, &mut vocab)?),
            Some(pre) => {
                vocab.warnings.extend(pre.warning);
                Model::Bpe(Box::new(Bpe::from_gguf(gguf, &mut vocab, &pre.rule)?))
            }
        };
        vocab.warnings.iter().for_each(|warning| log::warn!("{warning}"));
        Ok(Tokenizer { special: Special::new(&vocab), vocab, model })
    }

    /// Token ids of a text, which need not be UTF-8: byte-level BPE sees U+FFFD for each byte that is not, SentencePiece
    /// the byte itself. A byte that byte-level BPE has no token for is left out, with a warning.
    ///
    /// # Errors
    /// [`Error::Tokenizer`] if the file has no vocabulary, if SentencePiece has neither a token for a byte nor one for
    /// unknown text, and for a megabyte of nothing but white space.
    pub fn encode(&self, text: &[u8], options: &Encode) -> Result<Vec<u32>> {
        Ok(self.encode_cut(text, options, &[])?.0)
    }

    /// As [`Tokenizer::encode`], but no token crosses one of `cuts`, byte offsets in rising order at which characters begin:
    /// so the tokens of a prompt are those that it has alone, whatever follows it. Also gives, for each cut, how many ids
    /// come before it. A control token's text stays whole; one that a cut goes through lies before it.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`].
    pub(crate) fn encode_cut(&self, text: &[u8], options: &Encode, cuts: &[usize]) -> Result<(Vec<u32>, Vec<usize>)> {
        if matches!(self.model, Model::None) && !text.is_empty() {
            let what = "the file has no vocabulary, so text cannot be tokenized; give token ids instead".into();
            return Err(Error::Tokenizer { what });
        }
        let mut ids = Vec::new();
        if options.add_special && self.vocab.adds_bos {
            ids.extend(self.vocab.bos);
        }
        let parts = self.special.split(text, options.parse_special, options.literal);
        let mut marks = Vec::with_capacity(cuts.len());
        let mut after_special = true; // the text's start counts as one
        for (i, (start, part)) in parts.iter().enumerate() {
            let passed = cuts[marks.len()..].iter().take_while(|&cut| cut <= start).count();
            marks.resize(marks.len() + passed, ids.len());
            match part {
                special::Part::Token(id) => {
                    if i == 0 && options.add_special && self.vocab.adds_bos && Some(*id) == self.vocab.bos {
                        log::warn!("the text begins with BOS, which is added too: the model sees it twice");
                    }
                    ids.push(*id);
                    after_special = true;
                }
                special::Part::Text(text) => {
                    let mut from = 0;
                    while from < text.len() {
                        let cut = cuts.get(marks.len()).filter(|&cut| cut - start < text.len());
                        let to = cut.map_or(text.len(), |cut| cut - start);
                        if to > from {
                            self.encode_text(&text[from..to], after_special, &mut ids)?;
                            after_special = false;
                        }
                        marks.extend(cut.map(|_| ids.len()));
                        from = to;
                    }
                }
            }
        }
        marks.resize(cuts.len(), ids.len());
        if options.add_special && self.vocab.adds_eos {
            if let (Some((_, special::Part::Token(id))), Some(eos)) = (parts.last(), self.vocab.eos)
                && *id == eos
            {
                log::warn!("the text ends with EOS, which is added too: the model sees it twice");
            }
            ids.extend(self.vocab.eos);
        }
        Ok((ids, marks))
    }

    fn encode_text(&self, text: &[u8], after_special: bool, ids: &mut Vec<u32>) -> Result<()> {
        match &self.model {
            Model::Bpe(bpe) => bpe.encode(text, ids),
            Model::Spm(spm) => spm.encode(text, after_special, &self.vocab, ids),
            Model::None => Ok(()),
        }
    }

    /// The text of some tokens; bytes that are no UTF-8 become U+FFFD. Control tokens are left out. A text that
    /// SentencePiece encoded loses the space that encoding put before it.
    pub fn decode(&self, ids: &[u32]) -> String {
        String::from_utf8_lossy(&self.decode_bytes(ids, false)).into_owned()
    }

    /// The bytes of some tokens; control tokens as their texts, or left out.
    pub fn decode_bytes(&self, ids: &[u32], show_special: bool) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut at_start = matches!(&self.model, Model::Spm(spm) if spm.space_prefix);
        for &id in ids {
            let piece = self.piece(id, show_special);
            let is_control = self.vocab.kind(id) == Kind::Control;
            let piece = if at_start && !is_control { piece.strip_prefix(b" ").unwrap_or(&piece) } else { &piece };
            bytes.extend_from_slice(piece);
            at_start = at_start && is_control;
        }
        bytes
    }

    /// What one token adds to a text; nothing for a control token unless `show_special`.
    pub fn piece(&self, id: u32, show_special: bool) -> Vec<u8> {
        let text = self.vocab.text(id);
        match self.vocab.kind(id) {
            Kind::Control | Kind::Unknown if show_special => text.to_vec(),
            Kind::Control | Kind::Unknown | Kind::Unused => Vec::new(),
            Kind::UserDefined => text.to_vec(),
            Kind::Byte => spm::byte_of(text).map_or_else(|| text.to_vec(), |byte| vec![byte]),
            Kind::Normal => match &self.model {
                Model::Bpe(_) => bpe::bytes_of(text),
                Model::Spm(_) => spm::unescape(text),
                Model::None => Vec::new(),
            },
        }
    }

    /// The token as the vocabulary writes it; None outside the vocabulary.
    pub fn token_text(&self, id: u32) -> Option<&[u8]> {
        ((id as usize) < self.vocab.len()).then(|| self.vocab.text(id))
    }

    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    pub fn bos(&self) -> Option<u32> {
        self.vocab.bos
    }

    pub fn eos(&self) -> Option<u32> {
        self.vocab.eos
    }

    /// Whether `add_special` puts BOS before a text.
    pub fn adds_bos(&self) -> bool {
        self.vocab.adds_bos && self.vocab.bos.is_some()
    }

    /// The tokens that end an answer: EOS, end of turn and the like, by the file's keys and by well-known texts.
    pub fn end_ids(&self) -> &[u32] {
        &self.vocab.end_ids
    }

    pub fn is_end(&self, id: u32) -> bool {
        self.vocab.end_ids.contains(&id)
    }

    /// The id of a token by its text in the vocabulary.
    pub fn id_of(&self, text: &[u8]) -> Option<u32> {
        self.vocab.id_of(text)
    }

    /// The texts that `parse_special` takes for tokens, or that always are.
    pub fn control_texts(&self) -> Vec<String> {
        self.special.texts()
    }

    /// "gpt2", "llama" or "none".
    pub fn kind(&self) -> &'static str {
        match self.model {
            Model::Bpe(_) => "gpt2",
            Model::Spm(_) => "llama",
            Model::None => "none",
        }
    }

    /// What is odd about the vocabulary but does not stop us.
    pub fn warnings(&self) -> &[String] {
        &self.vocab.warnings
    }

    /// Text of tokens as they come, never half a character. It continues a text, so SentencePiece's space before the
    /// first word stays.
    pub fn stream(&self) -> TextStream<'_> {
        TextStream::new(self)
    }
}
