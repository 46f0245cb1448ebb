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
const QWEN35: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const MINICPM5: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const SEED_CODER: &str = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+";
// Only ASCII letters have a case to these two, as in llama.cpp; the models' own rules know the case of all letters.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]*[\p{L}&&[^A-Z]]+(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|[^\r\n\p{L}\p{N}]?[\p{L}&&[^a-z]]+[\p{L}&&[^A-Z]]*(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const DEEPSEEK3: &str = r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"##;
/// The letters with case that DeepSeek knows: not those of Armenian, Georgian, mathematics and newer Unicode.
const CASED: &str = r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u{1F7D}ᾀ-ᾴᾶ-ᾼ\u{1FBE}ῂ-ῄῆ-ῌῐ-\u{1FD3}ῖ-\u{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u{2126}ℨ\u{212A}-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+";
/// Scripts that DeepSeek keeps together. The white space among U+0800 to U+4E00 is none of them, as in llama.cpp.
const CJK: &str = r"[[\u{0800}-龥가-\u{D7FF}]--\s]+";

/// (names, regexes, whole words, adds BOS)
type Row = (&'static [&'static str], &'static [&'static str], bool, bool);

const TABLE: &[Row] = &[
    (&["default"], &[r"[\p{P}\$\+<=>\^~\|]+", GPT2, r"\p{N}+", "[0-9][0-9][0-9]"], false, false),
    (
        &[
            "gpt-2",
            "phi-2",
            "mpt",
            "olmo",
            "jais",
            "exaone4",
            "trillion",
            "granite-docling",
            "a.x-4.0",
            "mellum",
            "gigachat",
        ],
        &[GPT2],
        false,
        false,
    ),
    (
        &["llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"],
        &[LLAMA3],
        true,
        true,
    ),
    (&["dbrx", "smaug-bpe"], &[LLAMA3], false, false),
    (
        &["qwen2", "stablelm2", "deepseek-r1-qwen", "megrez", "hunyuan", "kormo", "solar-open", "grok-2"],
        &[QWEN2],
        false,
        false,
    ),
    (&["qwen35"], &[QWEN35], false, false),
    (
        &["smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"],
        &[r"\p{N}", GPT2],
        false,
        false,
    ),
    (&["tekken"], &[TEKKEN], true, true),
    (&["gpt-4o", "llama4", "kanana2"], &[GPT4O], false, false),
    (&["seed-coder"], &[SEED_CODER], false, false),
    (&["minicpm5"], &[r"\p{N}{1,3}", MINICPM5], true, false),
    (&["deepseek-llm"], &[r"[\r\n]", CASED, r"\s?[!-/:-~！-／：-～‘-‟、-。]+", r"\s+$", CJK, r"\p{N}+"], false, false),
    (&["deepseek-coder"], &[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CJK, r"\p{N}"], false, false),
    (&["deepseek-v3", "hunyuan-dense", "joyai-llm"], &[r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK3], false, false),
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
