//! Tokenizers of odd vocabularies, made here: what real files lack or have wrong, and what is right then.

#![allow(clippy::single_range_in_vec_init)] // lists of one range are meant

mod common;

use common::Table;
use peregrine::gguf::{Array, Gguf, Strings, Value, Writer};
use peregrine::tokenizer::{Encode, Tokenizer};
use std::cell::RefCell;

/// GGUF's token types.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

const PLAIN: Encode = Encode { add_special: false, parse_special: false, literal: &[] };
const PARSED: Encode = Encode { add_special: false, parse_special: true, literal: &[] };

/// What a file holds: keys override the usual ones, None takes one away.
type Keys<'a> = &'a [(&'a str, Option<Value>)];

fn build(usual: Vec<(&str, Value)>, keys: Keys) -> peregrine::Result<Tokenizer> {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama");
    for (name, value) in usual.into_iter().filter(|(name, _)| keys.iter().all(|(other, _)| name != other)) {
        writer.set(&format!("tokenizer.ggml.{name}"), value);
    }
    for (name, value) in keys.iter().filter_map(|(name, value)| Some((name, value.clone()?))) {
        writer.set(&format!("tokenizer.ggml.{name}"), value);
    }
    Tokenizer::from_gguf(&Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap())
}

fn spm(tokens: &[(&[u8], f32, i32)], keys: Keys) -> peregrine::Result<Tokenizer> {
    let usual = vec![
        ("model", Value::from("llama")),
        ("tokens", tokens.iter().map(|t| t.0).collect::<Strings>().into()),
        ("scores", tokens.iter().map(|t| t.1).collect::<Vec<f32>>().into()),
        ("token_type", Array::I32(tokens.iter().map(|t| t.2).collect()).into()),
    ];
    build(usual, keys)
}

/// The printable bytes, the space (which byte-level BPE writes as Ġ), then these.
fn bpe(tokens: &[(&str, i32)], merges: &[&str], keys: Keys) -> peregrine::Result<Tokenizer> {
    let bytes: Vec<String> = ('!'..='~').map(String::from).chain(["Ġ".to_string()]).collect();
    let kinds = bytes.iter().map(|_| NORMAL).chain(tokens.iter().map(|t| t.1)).collect();
    let texts = bytes.iter().map(|text| &text[..]).chain(tokens.iter().map(|t| t.0));
    let usual = vec![
        ("model", Value::from("gpt2")),
        ("pre", Value::from("gpt-2")),
        ("tokens", texts.collect::<Strings>().into()),
        ("token_type", Array::I32(kinds).into()),
        ("merges", merges.iter().collect::<Strings>().into()),
    ];
    build(usual, keys)
}

/// The id of the first of `tokens` in [`bpe`].
const OURS: u32 = 95;

fn strings(texts: &[&str]) -> Option<Value> {
    Some(texts.iter().collect::<Strings>().into())
}

fn same<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{got:?}, expected {want:?}")) }
}

/// The texts, as tokens joined by "|".
fn pieces(tokenizer: &Tokenizer, text: &[u8], options: &Encode) -> String {
    let ids = tokenizer.encode(text, options).unwrap();
    let shown: Vec<String> =
        ids.iter().map(|&id| String::from_utf8_lossy(tokenizer.token_text(id).unwrap()).into_owned()).collect();
    shown.join("|")
}

const SMALL: &[(&[u8], f32, i32)] = &[
    (b"<unk>", 0.0, UNKNOWN),
    (b"<s>", 0.0, CONTROL),
    (b"</s>", 0.0, CONTROL),
    (b"a", -9.0, NORMAL),
    (b"b", -9.0, NORMAL),
    (b"c", -9.0, NORMAL),
    (b"ab", -3.0, NORMAL),
    (b"bc", -1.0, NORMAL),
    (b"abc", -4.0, NORMAL),
    (b"aa", -2.0, NORMAL),
    (b"<0x0A>", 0.0, BYTE),
    (b"<0xC3>", 0.0, BYTE),
    ("\u{2581}".as_bytes(), -5.0, NORMAL),
    ("\u{2581}a".as_bytes(), -0.5, NORMAL),
    (b"<|tool|>", 0.0, USER),
    (b"<gone>", 0.0, UNUSED),
    (b"cc", 0.0, CONTROL),
];

#[test]
fn spm_joins_the_highest_score_first() {
    let tokenizer = spm(SMALL, &[("add_space_prefix", Some(Value::Bool(false)))]).unwrap();
    let mut table = Table::new("SPM");
    for (text, want) in [
        (&b"abc"[..], "abc"), // bc first, then a + bc
        (b"ab", "ab"),
        (b"aaa", "aa|a"), // the leftmost of two equal pairs
        (b"aaaa", "aa|aa"),
        (b"a\n", "a|<0x0A>"),
        (b"\xc3a", "<0xC3>|a"), // the byte promises another; the two are no token
        (b"abx", "ab|<unk>"),   // no token of the byte x
        (b" a", "\u{2581}a"),   // a space is a character like others
        (b"<gone>", "<unk>|<unk>|<unk>|<unk>|<unk>|<unk>"),
        (b"cc", "c|c"), // a control token is never what a text spells
        (b"", ""),
    ] {
        table.row(&text.escape_ascii().to_string(), same(&pieces(&tokenizer, text, &PLAIN)[..], want));
    }
    table.finish();
}

#[test]
fn spm_puts_a_space_first_and_after_special_tokens() {
    let tokenizer = spm(SMALL, &[]).unwrap();
    let mut table = Table::new("SPM's space");
    for (text, options, want) in [
        (&b"ab"[..], PLAIN, "\u{2581}a|b"),
        (b" a", PLAIN, "\u{2581}|\u{2581}a"),
        (b"a<s>a", PARSED, "\u{2581}a|<s>|\u{2581}a"),
        (b"a<|tool|>a", PLAIN, "\u{2581}a|<|tool|>|\u{2581}a"),
        (b"<|tool|><|tool|>", PLAIN, "<|tool|>|<|tool|>"),
        (b"a", Encode::default(), "<s>|\u{2581}a"),
        (b"", Encode::default(), "<s>"),
    ] {
        table.row(&text.escape_ascii().to_string(), same(&pieces(&tokenizer, text, &options)[..], want));
    }
    // decoding takes the first space away again, a stream keeps it: it may continue a text
    let ids = tokenizer.encode(b"a a", &Encode::default()).unwrap();
    table.row("decode", same(&tokenizer.decode(&ids)[..], "a a"));
    table.row("show special", same(&tokenizer.decode_bytes(&ids, true)[..], b"<s>a a"));
    let mut stream = tokenizer.stream();
    let streamed: String = ids.iter().map(|&id| stream.push(id)).collect::<String>() + &stream.finish();
    table.row("stream", same(&streamed[..], " a a"));
    table.finish();
}

#[test]
fn spm_without_scores_or_types() {
    let mut table = Table::new("incomplete SPM");
    let has = |tokenizer: &Tokenizer, what: &str| {
        let warnings = tokenizer.warnings();
        if warnings.iter().any(|w| w.contains(what)) { Ok(()) } else { Err(format!("{what:?} is not in {warnings:?}")) }
    };
    // without scores the leftmost pair comes first: ab, then abc
    let no_scores = spm(SMALL, &[("scores", None)]).unwrap();
    table.row("no scores", same(&pieces(&no_scores, b"<s>bc aab", &PARSED)[..], "<s>|\u{2581}|bc|\u{2581}a|ab"));
    table.row("no scores", has(&no_scores, "scores is missing"));
    let whole: Vec<i32> = SMALL.iter().map(|t| t.1 as i32).collect();
    let whole_scores = spm(SMALL, &[("scores", Some(Array::I32(whole).into()))]).unwrap();
    table.row("whole numbers as scores", same(&pieces(&whole_scores, b"bbc", &PLAIN)[..], "\u{2581}|b|bc"));

    let no_types = spm(SMALL, &[("token_type", None)]).unwrap();
    table.row("no types", has(&no_types, "token_type is missing"));
    table.row("no types: bytes are bytes", same(no_types.piece(10, false), b"\n".to_vec()));
    table.row("no types: the end is known by its text", same(no_types.end_ids().to_vec(), vec![2]));
    table.row("no types: the end is parsed", same(no_types.encode(b"</s>", &PARSED).unwrap(), vec![2]));

    // a score of -0 equals one of 0
    let tokens: &[(&[u8], f32, i32)] =
        &[(b"<unk>", 0.0, 2), (b"a", -1.0, 1), (b"b", -1.0, 1), (b"ab", -0.0, 1), (b"ba", 0.0, 1)];
    let zero = spm(tokens, &[("add_space_prefix", Some(Value::Bool(false)))]).unwrap();
    table.row("minus zero", same(&pieces(&zero, b"aba", &PLAIN)[..], "ab|a"));
    table.finish();
}

#[test]
fn special_tokens_in_text() {
    let tokens = [
        ("<|im_end|>", USER), // a wrong type that real files have: it is a control token all the same
        ("<|im_end|>x", USER),
        ("<|tool|>", USER),
        ("<|u|>", UNUSED),
        ("<unk>", UNKNOWN),
        ("", CONTROL),
        ("a\0b", NORMAL),
        ("ab", CONTROL),
        ("dd", NORMAL),
        ("dd", NORMAL),
    ];
    let tokenizer = bpe(&tokens, &["a b", "d d"], &[]).unwrap();
    let mut table = Table::new("special tokens");
    for (text, options, want) in [
        ("<|tool|>", PLAIN, "<|tool|>"),
        ("<|im_end|>x", PLAIN, "<|im_end|>x"), // the longest one, and user-defined
        ("<|im_end|>", PARSED, "<|im_end|>"),
        ("<|im_end|>x", PARSED, "<|im_end|>x"),
        ("<|im_end|>", PLAIN, "<|||i|m|_|e|n|d|||>"),
        ("<|IM_END|>", PARSED, "<|||I|M|_|E|N|D|||>"),
        ("<|u|>", PARSED, "<|||u|||>"),
        ("<unk>", PARSED, "<unk>"),
        ("<unk>", PLAIN, "<|u|n|k|>"),
        ("ab", PLAIN, "a|b"), // merges never spell a control token
        ("ab", PARSED, "ab"),
        ("dd", PLAIN, "dd"),
        ("<|tool|>", Encode { literal: &[0..8], ..PARSED }, "<|tool|>"),
        ("<|im_end|>", Encode { literal: &[3..4], ..PARSED }, "<|||i|m|_|e|n|d|||>"),
    ] {
        table.row(text, same(&pieces(&tokenizer, text.as_bytes(), &options)[..], want));
    }
    table.row("of equal tokens the first", same(tokenizer.id_of(b"dd"), Some(OURS + 8)));
    table.row("their texts", same(tokenizer.piece(OURS + 9, false), b"dd".to_vec()));
    table.row("NUL in a token", same(tokenizer.piece(OURS + 6, false), b"a\0b".to_vec()));
    table.row("an empty token", same(tokenizer.piece(OURS + 5, true), Vec::new()));
    table.row("control, hidden", same(tokenizer.piece(OURS, false), Vec::new()));
    table.row("control, shown", same(tokenizer.piece(OURS, true), b"<|im_end|>".to_vec()));
    table.row("outside the vocabulary", same(tokenizer.piece(u32::MAX, true), Vec::new()));
    table.row("outside the vocabulary", same(tokenizer.token_text(OURS + 10), None));
    table.finish();
}

#[test]
fn phi3_tokens_take_the_space_behind_them() {
    let tokens = [
        ("<|assistant|>", CONTROL),
        ("<|placeholder1|>", CONTROL),
        ("<|endoftext|>", CONTROL),
        ("</s>", USER),
        ("ċ", NORMAL),
        ("Č", NORMAL),
        ("č", NORMAL),
        ("ĉ", NORMAL),
        ("Ċ", NORMAL),
    ]; // the bytes of white space
    let tokenizer = bpe(&tokens, &[], &[]).unwrap();
    let mut table = Table::new("Phi-3");
    for (text, want) in [
        ("<|assistant|> \n\x0b\x0c\r\ta", "<|assistant|>|a"),
        ("a <|assistant|>", "a|Ġ|<|assistant|>"),
        ("<|endoftext|> a", "<|endoftext|>|Ġ|a"),
        ("</s> a", "</s>|a"),
    ] {
        table.row(text, same(&pieces(&tokenizer, text.as_bytes(), &PARSED)[..], want));
    }
    table.finish();
}

#[test]
fn bpe_merges() {
    let tokens = [("ab", NORMAL), ("bc", NORMAL), ("abc", NORMAL), ("Ġa", NORMAL), ("xy", NORMAL), ("yz", NORMAL)];
    // a second rank of one pair does not count; a merge of what is no token does nothing
    let merges = ["b c", "a b", "a bc", "Ġ a", "b c", "q r", "nonsense", "", "x y", "y z", "x y"];
    let tokenizer = bpe(&tokens, &merges, &[]).unwrap();
    let mut table = Table::new("merges");
    for (text, want) in
        [("abc", "abc"), ("abb", "ab|b"), ("ab bc", "ab|Ġ|bc"), (" ab", "Ġ|ab"), ("xyz", "xy|z"), ("qr", "q|r")]
    {
        table.row(text, same(&pieces(&tokenizer, text.as_bytes(), &PLAIN)[..], want));
    }
    table.row("told", same(tokenizer.warnings().iter().any(|w| w.contains("3 of 11 merges")), true));
    // é has no tokens: its bytes are left out, and do not bring their neighbours together
    table.row("bytes without a token", same(&pieces(&tokenizer, "aéb".as_bytes(), &PLAIN)[..], "a|b"));
    table.row("that is told", same(warned("lacks bytes", || tokenizer.encode("aéb".as_bytes(), &PLAIN)), true));
    let space = tokenizer.encode(&vec![b' '; 1_000_000], &PLAIN).map_err(|e| e.to_string());
    table.row("a megabyte of space", same(space.is_err_and(|e| e.contains("white space")), true));
    let space = tokenizer.encode(&vec![b' '; 999_999], &PLAIN).map(|ids| ids.len());
    table.row("a little less", same(space.ok(), Some(999_999)));
    table.finish();
}

#[test]
fn ends_of_an_answer() {
    let id = |id: u32| Some(Value::U32(id));
    let tokens =
        [("<|end|>", CONTROL), ("<|return|>", CONTROL), ("<|call|>", CONTROL), ("x1", CONTROL), ("x2", CONTROL)];
    let mut table = Table::new("ends");
    for (name, tokens, keys, want) in [
        ("by text", &tokens[..2], vec![], vec![OURS, OURS + 1]),
        ("<|end|> of a part", &tokens[..3], vec![], vec![OURS + 1, OURS + 2]),
        ("none", &tokens[3..], vec![], vec![]),
        ("eos", &tokens[3..], vec![("eos_token_id", id(OURS))], vec![OURS]),
        (
            "eot, eom",
            &tokens[3..],
            vec![("eot_token_id", id(OURS)), ("eom_token_id", id(OURS + 1))],
            vec![OURS, OURS + 1],
        ),
        ("fim", &tokens[3..], vec![("fim_sep_token_id", id(OURS + 1))], vec![OURS + 1]),
        ("outside", &tokens[3..], vec![("eos_token_id", id(9999)), ("eot_token_id", id(OURS))], vec![OURS]),
    ] {
        let tokenizer = bpe(tokens, &[], &keys).unwrap();
        table.row(name, same(tokenizer.end_ids().to_vec(), want.clone()));
        table.row(name, same(want.iter().all(|&id| tokenizer.is_end(id)) && !tokenizer.is_end(0), true));
    }
    table.finish();
}

#[test]
fn what_is_added() {
    let (bos, eos) = (Some(Value::U32(OURS)), Some(Value::U32(OURS + 1)));
    let yes = || Some(Value::Bool(true));
    let tokens = [("<b>", CONTROL), ("<e>", CONTROL)];
    let mut table = Table::new("added");
    for (name, keys, want, warning) in [
        ("gpt-2 adds none", vec![("bos_token_id", bos.clone())], "a", ""),
        ("llama-bpe adds BOS", vec![("pre", Some("llama-bpe".into())), ("bos_token_id", bos.clone())], "<b>|a", ""),
        (
            "both",
            vec![
                ("bos_token_id", bos.clone()),
                ("eos_token_id", eos.clone()),
                ("add_bos_token", yes()),
                ("add_eos_token", yes()),
            ],
            "<b>|a|<e>",
            "",
        ),
        ("no BOS to add", vec![("add_bos_token", yes())], "a", "wants BOS"),
        ("no EOS to add", vec![("add_eos_token", yes())], "a", "wants EOS"),
        ("BOS outside", vec![("bos_token_id", Some(Value::I32(-1))), ("add_bos_token", yes())], "a", "bos_token_id"),
        ("no pre", vec![("pre", None)], "a", "tokenizer.ggml.pre is missing"),
    ] {
        let tokenizer = bpe(&tokens, &[], &keys).unwrap();
        table.row(name, same(&pieces(&tokenizer, b"a", &Encode::default())[..], want));
        let told = warning.is_empty() || tokenizer.warnings().iter().any(|w| w.contains(warning));
        table.row(name, if told { Ok(()) } else { Err(format!("{warning:?} is not in {:?}", tokenizer.warnings())) });
    }
    // SentencePiece's usual ids hold where the file's are outside the vocabulary
    let tokenizer = spm(SMALL, &[("eos_token_id", Some(Value::U32(77)))]).unwrap();
    table.row("usual ids", same((tokenizer.bos(), tokenizer.eos()), (Some(1), Some(2))));
    table.row("that is told", same(tokenizer.warnings().iter().any(|w| w.contains("eos_token_id is 77")), true));

    let keys = [("bos_token_id", bos), ("eos_token_id", eos), ("add_bos_token", yes()), ("add_eos_token", yes())];
    let tokenizer = bpe(&tokens, &[], &keys).unwrap();
    for (text, what, want) in [
        ("<b>a", "begins with BOS", true),
        ("a<b>", "begins with BOS", false),
        ("a<e>", "ends with EOS", true),
        ("<e>a", "ends with EOS", false),
    ] {
        let got = warned(what, || tokenizer.encode(text.as_bytes(), &Encode::default()));
        table.row(&format!("{text} {what}"), same(got, want));
        table.row(text, same(warned(what, || tokenizer.encode(text.as_bytes(), &PARSED)), false));
    }
    let tokenizer = bpe(&tokens, &[], &[("bos_token_id", Some(Value::U32(OURS)))]).unwrap();
    let got = warned("begins with BOS", || tokenizer.encode(b"<b><b>", &Encode::default()));
    table.row("typed twice, not added", same(got, false));
    table.finish();
}

#[test]
fn refusals() {
    let model = |name: &str| vec![("model", Some(Value::from(name)))];
    let mut table = Table::new("refusals");
    for (keys, words) in [
        (model("bert"), &["bert", "gpt2", "llama"][..]),
        (model("t5"), &["t5"]),
        (model("rwkv"), &["rwkv"]),
        (model("tiktoken9"), &["unknown tokenizer", "tiktoken9", "newer"]),
        (vec![("model", None)], &["tokenizer.ggml.model", "ids"]),
        (vec![("pre", Some("brand-new".into()))], &["brand-new", "llama-bpe", "qwen2", "tokenizer.ggml.pre"]),
        (vec![("merges", None)], &["tokenizer.ggml.merges"]),
        (vec![("merges", Some(Value::U32(1)))], &["tokenizer.ggml.merges", "array of strings"]),
        (vec![("tokens", None)], &["tokenizer.ggml.tokens"]),
        (vec![("tokens", Some(Value::U32(1)))], &["tokenizer.ggml.tokens", "array of strings"]),
        (
            vec![("token_type", Some(Array::I32(vec![1]).into()))],
            &["tokenizer.ggml.token_type", "96", "array of 1 i32"],
        ),
        (vec![("token_type", strings(&["x"]))], &["tokenizer.ggml.token_type", "string"]),
        (vec![("add_bos_token", Some(Value::U32(1)))], &["tokenizer.ggml.add_bos_token", "bool"]),
    ] {
        let outcome = match bpe(&[("x1", NORMAL)], &[], &keys) {
            Ok(_) => Err("it loads".into()),
            Err(e) => match words.iter().find(|word| !e.to_string().contains(**word)) {
                Some(word) => Err(format!("{word:?} is not in {e}")),
                None => Ok(()),
            },
        };
        table.row(&format!("{keys:?}"), outcome);
    }
    let e = spm(SMALL, &[("scores", Some(vec![0.0f32].into()))]).err().map(|e| e.to_string()).unwrap_or_default();
    table.row("scores", same(e.contains("tokenizer.ggml.scores") && e.contains("array of 17 f32"), true));

    for name in ["none", "no_vocab"] {
        let tokenizer = build(vec![("model", name.into())], &[]).unwrap();
        let e = tokenizer.encode(b"a", &Encode::default()).err().map(|e| e.to_string()).unwrap_or_default();
        table.row(name, same(e.contains("no vocabulary") && e.contains("ids"), true));
        table.row(name, same(tokenizer.encode(b"", &Encode::default()).ok(), Some(vec![])));
        table.row(name, same((tokenizer.vocab_size(), tokenizer.decode(&[1, 2])), (0, String::new())));
    }
    table.finish();
}

#[test]
fn a_stream_never_holds_half_a_character() {
    let bytes: Vec<(Vec<u8>, f32, i32)> =
        (0..=255u8).map(|byte| (format!("<0x{byte:02X}>").into_bytes(), 0.0, BYTE)).collect();
    let tokens: Vec<(&[u8], f32, i32)> = bytes.iter().map(|t| (&t.0[..], t.1, t.2)).collect();
    let tokenizer =
        spm(&tokens, &[("add_space_prefix", Some(Value::Bool(false))), ("eos_token_id", Some(Value::U32(0)))]).unwrap();
    let mut table = Table::new("stream");
    for (bytes, want, rest) in [
        (&b"ab"[..], vec!["a", "b"], ""),
        ("é".as_bytes(), vec!["", "é"], ""),
        ("😀!".as_bytes(), vec!["", "", "", "😀", "!"], ""),
        (b"\x80a", vec!["\u{fffd}", "a"], ""), // can never begin a character
        (b"\xe2\x82a", vec!["", "", "\u{fffd}a"], ""), // the next one shows it
        (b"\xe2\xe2\x82\xac", vec!["", "\u{fffd}", "", "€"], ""),
        (b"\xf0\x9f\x98", vec!["", "", ""], "\u{fffd}"), // the end shows it
        (b"\xc0\xaf", vec!["\u{fffd}", "\u{fffd}"], ""), // overlong
        (b"\xed\xa0\x80", vec!["", "\u{fffd}\u{fffd}", "\u{fffd}"], ""), // half of a surrogate pair
        (b"\xff\xfe", vec!["\u{fffd}", "\u{fffd}"], ""),
    ] {
        let mut stream = tokenizer.stream();
        let got: Vec<String> = bytes.iter().map(|&byte| stream.push(byte as u32)).collect();
        let row = bytes.escape_ascii().to_string();
        table.row(&row, same(got, want.iter().map(|text| text.to_string()).collect()));
        table.row(&row, same(&stream.finish()[..], rest));
        table.row(&row, same(&stream.finish()[..], ""));
    }
    table.finish();
}

thread_local! {
    static LOG: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata) -> bool {
        true
    }

    fn log(&self, record: &log::Record) {
        LOG.with_borrow_mut(|log| log.push(record.args().to_string()));
    }

    fn flush(&self) {}
}

/// Whether `act` logs a line with these words.
fn warned<T>(words: &str, act: impl FnOnce() -> T) -> bool {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        log::set_logger(&Logger).expect("the only logger of this program");
        log::set_max_level(log::LevelFilter::Warn);
    });
    LOG.with_borrow_mut(Vec::clear);
    act();
    LOG.with_borrow(|log| log.iter().any(|line| line.contains(words)))
}
