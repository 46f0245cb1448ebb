//! Pre-tokenizers: how byte-level BPE cuts a text into words before merging, by the name in `tokenizer.ggml.pre`.

use crate::error::{Error, Result};
use crate::gguf::Gguf;

/// How words are cut.
pub(super) struct Rule {
    /// Applied one after another, each to the pieces of the one before; matches and what lies between are pieces.
    pub regexes: &'static [&'static str],
    /// A word that is a token as a whole is taken as it is, whatever the merges say.
    pub whole_words: bool,
}

/// What a file's key means.
pub(super) struct Found {
    pub rule: Rule,
    /// What models with this pre-tokenizer do where the file does not say.
    pub adds_bos: bool,
    pub warning: Option<String>,
}

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)";
const LLAMA3: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN2: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
/// The ideographs, syllables and scripts around them that DeepSeek keeps together.
const CJK: &str = "[一-龥\u{0800}-一가-\u{D7FF}]+";

/// (names, regexes, whole words, adds BOS)
type Row = (&'static [&'static str], &'static [&'static str], bool, bool);

const TABLE: &[Row] = &[
    (&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], false, false),
    (&["gpt-2", "phi-2", "mpt", "olmo", "jais", "roberta-bpe"], &[GPT2], false, false),
    (&["llama3", "llama-v3", "llama-bpe", "falcon3", "pixtral"], &[LLAMA3], true, true),
    (&["dbrx", "smaug-bpe"], &[LLAMA3], false, false),
    (&["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan"], &[QWEN2], false, false),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"],
        &[r"\p{N}", GPT2],
        false,
        false,
    ),
    (
        &["deepseek-llm"],
        &[r"[\r\n]", r"\s?[\p{Lu}\p{Ll}\p{Lt}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$", CJK, r"\p{N}+"],
        false,
        false,
    ),
    (&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"], false, false),
    (&["falcon"], &[r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"], false, false),
];

/// The rule that the file names.
pub(super) fn find(gguf: &Gguf) -> Result<Found> {
    let name = gguf.str("tokenizer.ggml.pre")?;
    let warning = match name {
        None => Some("tokenizer.ggml.pre is missing: the default rules are used, which may cut words otherwise than the model learned".into()),
        Some("default") => Some("tokenizer.ggml.pre is \"default\": the model may have learned other rules".into()),
        Some(_) => None,
    };
    let name = name.unwrap_or("default");
    let row = TABLE.iter().find(|row| row.0.contains(&name)).ok_or_else(|| {
        let known: Vec<&str> = TABLE.iter().flat_map(|row| row.0).copied().collect();
        Error::Unsupported {
            what: format!("unknown pre-tokenizer {name:?} (tokenizer.ggml.pre)"),
            hint: format!("Guessing would give wrong tokens; known are {}", known.join(", ")),
        }
    })?;
    let &(_, regexes, whole_words, adds_bos) = row;
    Ok(Found { rule: Rule { regexes, whole_words }, adds_bos, warning })
}
