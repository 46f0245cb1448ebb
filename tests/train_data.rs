//! Training data: every kind of file, what is learned of it, every error; the split, and batches that go on from any position.

#![allow(clippy::type_complexity)] // rows of tables

mod common;

use common::{Random, Table};
use peregrine::Error;
use peregrine::chat::{ChatInput, ChatTemplate};
use peregrine::gguf::{Array, Gguf, Strings, Value, Writer};
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::train::{Batches, DataKind, DataOptions, IGNORED, Report, Sequence, read_data, read_data_from, split};
use serde_json::{Value as Json, json};
use std::collections::HashSet;
use std::path::Path;

type Read = peregrine::Result<(Vec<Sequence>, Report)>;

/// The built-in model's tokenizer: byte-level BPE that adds nothing.
fn tales() -> Tokenizer {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tales-2m.Q8_0.gguf");
    Tokenizer::from_gguf(&Gguf::open(&path).unwrap()).unwrap()
}

/// A made-up SentencePiece vocabulary: bytes, a few words, and control tokens, of which </s> and <|im_end|> end answers.
fn made_up(keys: &[(&str, Value)]) -> Tokenizer {
    let bytes = (0..=255).map(|byte| format!("<0x{byte:02X}>"));
    let (controls, words) = (["<|im_start|>", "<|im_end|>"], ["\u{2581}", "he", "\u{2581}h", "\u{2581}he", "ll"]);
    let tokens: Vec<String> = ["<unk>", "<s>", "</s>"].iter().map(|text| text.to_string()).chain(bytes).collect();
    let tokens: Vec<String> = tokens.into_iter().chain(controls.into_iter().chain(words).map(String::from)).collect();
    let mut kinds = vec![2, 3, 3];
    kinds.extend([6; 256]);
    kinds.extend([3, 3, 1, 1, 1, 1, 1]);
    let scores: Vec<f32> = (0..tokens.len()).map(|id| -(id as f32)).collect();
    let tokens: Strings = tokens.iter().map(String::as_str).collect();
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").set("tokenizer.ggml.model", "llama");
    writer.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)));
    writer.set("tokenizer.ggml.scores", Value::Array(Array::F32(scores)));
    writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)));
    for (key, value) in keys {
        writer.set(key, value.clone());
    }
    Tokenizer::from_gguf(&Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap()
}

fn chatml() -> ChatTemplate {
    ChatTemplate::well_known("chatml", Some("<s>"), Some("</s>")).unwrap()
}

fn options(context: u32) -> DataOptions {
    DataOptions { context, ..DataOptions::default() }
}

fn read(name: &str, bytes: &[u8], options: &DataOptions, tokenizer: &Tokenizer) -> Read {
    read_data_from(Path::new(name), bytes, options, tokenizer, Some(&chatml()))
}

fn lines(objects: &[Json]) -> Vec<u8> {
    objects.iter().flat_map(|object| format!("{object}\n").into_bytes()).collect()
}

/// The text of the labels that count, with control tokens.
fn learned(tokenizer: &Tokenizer, sequence: &Sequence) -> String {
    let labels = sequence.labels.iter().filter(|&&label| label != IGNORED);
    String::from_utf8(labels.flat_map(|&label| tokenizer.piece(label, true)).collect()).unwrap()
}

/// All that must hold of any file: the report is true, no sequence is too long or empty, and each label that counts is the next
/// token.
fn check(sequences: &[Sequence], report: &Report, context: u32) -> Result<(), String> {
    let sum = |count: fn(&Sequence) -> usize| sequences.iter().map(|sequence| count(sequence) as u64).sum::<u64>();
    let (tokens, counted) = (sum(|sequence| sequence.ids.len()), sum(Sequence::counted));
    if (report.sequences, report.tokens, report.counted_labels) != (sequences.len(), tokens, counted) {
        return Err(format!("{report:?} of {} sequences, {tokens} tokens, {counted} labels", sequences.len()));
    }
    for (i, Sequence { ids, labels }) in sequences.iter().enumerate() {
        if ids.is_empty() || ids.len() > context as usize || ids.len() != labels.len() {
            return Err(format!("sequence {i} has {} tokens and {} labels", ids.len(), labels.len()));
        }
        if labels.iter().all(|&label| label == IGNORED) {
            return Err(format!("sequence {i} teaches nothing"));
        }
        if let Some(at) = (1..ids.len()).find(|&at| labels[at - 1] != IGNORED && labels[at - 1] != ids[at]) {
            return Err(format!("sequence {i}: label {} is {}, not {}", at - 1, labels[at - 1], ids[at]));
        }
    }
    Ok(())
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: T, want: T) -> Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("{what}: got {got:?}, want {want:?}")) }
}

/// Packed sequences in a row are the tokens, but for a last one that would be alone; every token after the first is learned once.
fn is_row(sequences: &[Sequence], tokens: &[u32], context: usize) -> Result<(), String> {
    let ids: Vec<u32> = sequences.iter().flat_map(|sequence| sequence.ids.clone()).collect();
    let labels: Vec<u32> = sequences.iter().flat_map(|sequence| sequence.labels.clone()).collect();
    let length = if tokens.len() % context == 1 { tokens.len() - 1 } else { tokens.len() };
    equal("tokens", &ids[..], &tokens[..length])?;
    let counted: Vec<u32> = labels.iter().copied().filter(|&label| label != IGNORED).collect();
    equal("labels", &counted[..], &tokens[1..])?;
    equal("whole", sequences.iter().rev().skip(1).all(|sequence| sequence.ids.len() == context), true)
}

#[test]
fn packed_rows_are_the_tokens() {
    let (tales, adds_eos) = (tales(), made_up(&[("tokenizer.ggml.add_eos_token", Value::Bool(true))]));
    let mut random = Random::new(1);
    let mut table = Table::new("packed rows");
    for case in 0..60 {
        let words = ["he", " hello", "\n", "\n\n", "Once upon a time", "\u{e9}", " <|im_end|>", ".", "\n the end"];
        let some = |random: &mut Random| -> String {
            let count = 3 + random.below(40);
            (0..count).map(|_| words[random.below(words.len() as u32) as usize]).collect::<String>() + "."
        };
        let context = 2 + random.below(30);
        for (name, tokenizer) in [("tales", &tales), ("made up", &adds_eos)] {
            let row = format!("{name} {case}, context {context}");
            let text = some(&mut random);
            let want = tokenizer.encode(text.as_bytes(), &Encode::default()).unwrap();
            let outcome = read("a.txt", text.as_bytes(), &options(context), tokenizer).map_err(|e| e.to_string());
            let outcome = outcome.and_then(|(sequences, report)| {
                equal("kind", (report.kind, report.cut, report.dropped), (DataKind::Text, 0, 0))?;
                check(&sequences, &report, context).and(is_row(&sequences, &want, context as usize))
            });
            table.row(&format!("text, {row}"), outcome);

            let texts: Vec<String> = (0..1 + random.below(5)).map(|_| some(&mut random)).collect();
            let objects: Vec<Json> = texts.iter().map(|text| json!({ "text": text, "other": 1 })).collect();
            let documents: Vec<Vec<u32>> = texts
                .iter()
                .map(|text| {
                    let mut ids = tokenizer.encode(text.as_bytes(), &Encode::default()).unwrap();
                    ids.extend(tokenizer.eos().filter(|eos| ids.last() != Some(eos)));
                    ids
                })
                .collect();
            let outcome = read("a", &lines(&objects), &options(context), tokenizer).map_err(|e| e.to_string());
            let outcome = outcome.and_then(|(sequences, report)| {
                equal("kind", report.kind, DataKind::Documents)?;
                check(&sequences, &report, context).and(is_row(&sequences, &documents.concat(), context as usize))
            });
            table.row(&format!("documents, {row}"), outcome);

            let alone = DataOptions { pack: false, ..options(context) };
            let outcome = read("a", &lines(&objects), &alone, tokenizer).map_err(|e| e.to_string());
            let outcome = outcome.and_then(|(sequences, report)| {
                let too_long = documents.iter().filter(|ids| ids.len() > context as usize + 1).count();
                equal("cut", (report.cut, report.dropped), (too_long, 0))?;
                let want: Vec<Sequence> = documents
                    .iter()
                    .map(|ids| Sequence::next_tokens(&ids[..ids.len().min(context as usize + 1)]))
                    .collect();
                check(&sequences, &report, context).and(equal("sequences", sequences, want))
            });
            table.row(&format!("documents alone, {row}"), outcome);
        }
    }
    table.finish();
}

#[test]
fn kinds_are_known_by_name_and_content() {
    let (document, chat, completion) = (
        json!({ "text": "hello" }),
        json!({ "messages": [{ "role": "user", "content": "he" }, { "role": "assistant", "content": "ll" }] }),
        json!({ "prompt": "he", "completion": "ll" }),
    );
    let mut both = document.clone();
    both["messages"] = chat["messages"].clone();
    let of = |kind| DataOptions { kind: Some(kind), ..options(64) };
    #[rustfmt::skip]
    let cases = [
        ("a", document.to_string(), options(64), DataKind::Documents),
        ("a.jsonl", format!("\n \t\n{document}\n\n{document}"), options(64), DataKind::Documents),
        ("a.txt", document.to_string(), options(64), DataKind::Text),
        ("a.TXT", document.to_string(), options(64), DataKind::Text),
        ("a.data", format!("  {{ {}", &document.to_string()[1..]), options(64), DataKind::Documents),
        ("a", "{ fn main() }".into(), options(64), DataKind::Text),
        ("a.md", "\n\n[1, 2]".into(), options(64), DataKind::Text),
        ("a", chat.to_string(), options(64), DataKind::Chats),
        ("a", completion.to_string(), options(64), DataKind::Completions),
        ("a", format!("\u{feff}{completion}\r\n{completion}\r\n"), options(64), DataKind::Completions),
        ("a", both.to_string(), of(DataKind::Chats), DataKind::Chats),
        ("a", both.to_string(), of(DataKind::Documents), DataKind::Documents),
        ("a.jsonl", both.to_string(), of(DataKind::Text), DataKind::Text),
        ("a.txt", both.to_string(), of(DataKind::Chats), DataKind::Chats),
    ];
    let mut table = Table::new("kinds");
    for (name, content, options, want) in cases {
        let outcome = read(name, content.as_bytes(), &options, &made_up(&[])).map_err(|e| e.to_string());
        let outcome = outcome.and_then(|(sequences, report)| {
            check(&sequences, &report, options.context).and(equal("kind", report.kind, want))
        });
        table.row(&format!("{name} {content:?}"), outcome);
    }
    table.finish();
}

#[test]
fn line_ends_and_the_byte_order_mark_are_not_learned() {
    let tokenizer = tales();
    let plain = read("a.txt", b"\none\n\ntwo\n", &options(64), &tokenizer).unwrap();
    let windows = read("a.txt", "\u{feff}\r\none\r\n\r\ntwo\r\n".as_bytes(), &options(64), &tokenizer).unwrap();
    assert_eq!(plain, windows);
    let inside = read("a.txt", b"a\rb\n\r\n", &options(64), &tokenizer).unwrap();
    assert_eq!(tokenizer.decode(&inside.0[0].ids), "a\rb\n\n");
}

#[test]
fn long_texts_are_cut_between_lines() {
    let tokenizer = tales();
    let text = "Once upon a time there was a king.\n".repeat(80_000); // 2.8 MB
    let (sequences, report) = read("a.txt", text.as_bytes(), &options(512), &tokenizer).unwrap();
    check(&sequences, &report, 512).unwrap();
    let ids: Vec<u32> = sequences.iter().flat_map(|sequence| sequence.ids.clone()).collect();
    let got = tokenizer.decode(&ids);
    assert!(text.starts_with(&got) && text.len() - got.len() < 20, "{} of {} bytes", got.len(), text.len());
    let mut counts = std::collections::HashMap::new(); // the tokens of a line are those of every other
    got.lines().for_each(|line| *counts.entry(line).or_insert(0) += 1);
    assert!(counts.len() <= 2);
}

#[test]
fn completions_are_learned_and_prompts_are_not() {
    let adds_eos = made_up(&[("tokenizer.ggml.add_eos_token", Value::Bool(true))]);
    let no_bos = made_up(&[("tokenizer.ggml.add_bos_token", Value::Bool(false))]);
    let mut table = Table::new("completions");
    for (name, tokenizer) in [("tales", tales()), ("made up", made_up(&[])), ("adds EOS", adds_eos), ("no BOS", no_bos)]
    {
        let end = tokenizer.eos().map(|eos| String::from_utf8(tokenizer.piece(eos, true)).unwrap()).unwrap();
        // "he" and "ll" would be other tokens together; the last ones end with EOS already.
        for (prompt, completion) in
            [("he", "llo"), ("hello h", "e"), ("hello", " hello\n"), ("h\n", "\nh"), ("h", end.as_str())]
        {
            let outcome = || {
                let object = json!({ "prompt": prompt, "completion": completion });
                let (sequences, report) =
                    read("a", &lines(&[object]), &options(64), &tokenizer).map_err(|e| e.to_string())?;
                check(&sequences, &report, 64)?;
                let sequence = &sequences[0];
                let ends = completion == end && name != "adds EOS"; // as the vocabulary asks, with a warning
                let learns = completion.to_string() + if ends { "" } else { &end };
                equal("learned", learned(&tokenizer, sequence), learns)?;
                let mut alone = tokenizer.encode(prompt.as_bytes(), &Encode::default()).unwrap();
                if name == "adds EOS" {
                    alone.pop(); // a prompt does not end there
                }
                equal("the prompt's tokens", &sequence.ids[..alone.len()], &alone[..])?;
                let first = sequence.labels.iter().position(|&label| label != IGNORED);
                equal("first label", first, Some(alone.len() - 1))
            };
            table.row(&format!("{name} {prompt:?} {completion:?}"), outcome());
        }
    }
    table.finish();
}

fn conversation() -> Json {
    json!([
        { "role": "system", "content": "Be kind." },
        { "role": "user", "content": "Hello <|im_end|> there" },
        { "role": "assistant", "content": "First <|im_start|> answer" },
        { "role": "user", "content": "And then?" },
        { "role": "assistant", "content": "Second answer." },
        { "role": "user", "content": "No answer to this" },
    ])
}

/// What the chat command would give the model before its answers: the tokens of the beginning of a conversation.
fn prompt(tokenizer: &Tokenizer, template: &ChatTemplate, messages: &[Json]) -> Vec<u32> {
    let messages = Json::Array(messages.to_vec());
    let now = DataOptions::default().now;
    let input = ChatInput { messages: &messages, tools: None, add_generation_prompt: true, now };
    let (text, literal) = template.render_guarded(&input, &tokenizer.control_texts()).unwrap();
    let add_special = !template.begins_with_bos(&text, &literal);
    tokenizer.encode(text.as_bytes(), &Encode { add_special, parse_special: true, literal: &literal }).unwrap()
}

fn check_chat(tokenizer: &Tokenizer, template: &ChatTemplate, end: &str) -> Result<(), String> {
    let messages = conversation();
    let file = lines(&[json!({ "messages": messages })]);
    let (sequences, report) = read_data_from(Path::new("a"), &file[..], &options(512), tokenizer, Some(template))
        .map_err(|e| e.to_string())?;
    check(&sequences, &report, 512)?;
    let want = format!("First <|im_start|> answer{end}Second answer.{end}");
    equal("learned", learned(tokenizer, &sequences[0]), want)?;
    let Sequence { ids, labels } = &sequences[0];
    // Where a run of labels that count begins, the tokens before are what the model sees in a chat.
    let begins = |&i: &usize| labels[i] != IGNORED && (i == 0 || labels[i - 1] == IGNORED);
    let starts: Vec<usize> = (0..labels.len()).filter(begins).collect();
    equal("answers", starts.len(), 2)?;
    let messages = messages.as_array().unwrap();
    for (start, count) in starts.into_iter().zip([2, 4]) {
        equal("what the chat shows", &ids[..=start], &prompt(tokenizer, template, &messages[..count])[..])?;
    }
    Ok(())
}

#[test]
fn answers_are_learned_and_nothing_else_of_a_chat() {
    let mut table = Table::new("chats");
    table.row("made up", check_chat(&made_up(&[]), &chatml(), "<|im_end|>"));
    table.row("tales", check_chat(&tales(), &chatml(), "<|im_end|>\n")); // has no such token: all that is added is learned
    if let Some(path) = common::data("fetched/SmolLM2-135M-Instruct.Q4_1.gguf") {
        let gguf = Gguf::open(&path).unwrap();
        let (tokenizer, template) =
            (Tokenizer::from_gguf(&gguf).unwrap(), ChatTemplate::from_gguf(&gguf, None).unwrap());
        table.row("SmolLM2", check_chat(&tokenizer, &template, "<|im_end|>"));
    }
    table.finish();
}

/// Templates of many models: either exactly the answers are learned, or an error names the line and the template's reason.
#[test]
fn templates_learn_the_answers_or_are_refused() {
    let Some(folder) = common::data("templates") else { return };
    let tokenizer = made_up(&[]);
    let mut table = Table::new("templates");
    let mut taken = Vec::new();
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for path in files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "jinja")) {
        let name = path.file_stem().unwrap().to_string_lossy().into_owned();
        let source = std::fs::read_to_string(path).unwrap();
        let template = ChatTemplate::new(&name, &source, Some("<s>"), Some("</s>")).unwrap();
        let chat = |turns: usize| {
            let turn = |i| {
                let question = json!({ "role": "user", "content": format!("question {i}") });
                [question, json!({ "role": "assistant", "content": format!("answer {i}") })]
            };
            json!({ "messages": (0..turns).flat_map(turn).collect::<Vec<_>>() })
        };
        for turns in [1, 3] {
            let file = lines(&[chat(turns)]);
            let outcome = read_data_from(Path::new("a"), &file[..], &options(8192), &tokenizer, Some(&template));
            let outcome = match outcome {
                Ok((sequences, report)) => check(&sequences, &report, 8192).and_then(|()| {
                    taken.push(format!("{name} {turns}"));
                    let text = learned(&tokenizer, &sequences[0]);
                    let all = (0..turns).all(|i| text.matches(&format!("answer {i}")).count() == 1);
                    equal(&text, (all, text.contains("question")), (true, false))
                }),
                Err(Error::Data { line: 1, what, source, .. }) => {
                    let says = what.contains(&name) || source.is_some_and(|e| e.to_string().contains(&name));
                    equal(&what, says, true)
                }
                Err(other) => Err(format!("{other:?}")),
            };
            table.row(&format!("{name}, {turns} turns"), outcome);
        }
    }
    common::loudly(&format!("templates that can be learned from: {}", taken.join(", ")));
    table.finish();
}

#[test]
fn long_chats_are_cut_and_those_without_an_answer_dropped() {
    let tokenizer = made_up(&[]);
    let chat = |answer: Option<&str>| {
        let question = json!({ "role": "user", "content": "hello" });
        let answer = answer.map(|answer| json!({ "role": "assistant", "content": answer }));
        json!({ "messages": std::iter::once(question).chain(answer).collect::<Vec<_>>() })
    };
    let file = lines(&[chat(Some("hi")), chat(None), chat(Some(&"long ".repeat(20)))]);
    let (sequences, report) = read("a", &file, &options(64), &tokenizer).unwrap();
    check(&sequences, &report, 64).unwrap();
    assert_eq!((report.sequences, report.cut, report.dropped), (2, 1, 1));
    assert_eq!(sequences[1].ids.len(), 64);
    assert!(learned(&tokenizer, &sequences[1]).starts_with("long long"));
    // where even the question is too long, the answer is beyond the context
    let error = read("a", &file, &options(8), &tokenizer).unwrap_err();
    assert!(format!("{error:?}").contains("3 sequences of which no label counts (2 were cut"), "{error:?}");
}

#[test]
fn errors_say_where_what_and_why() {
    let of = |kind| DataOptions { kind: Some(kind), ..options(64) };
    let chat = |messages: Json| json!({ "messages": messages }).to_string().into_bytes();
    let user = json!({ "role": "user", "content": "hello" });
    let document = br#"{"text": "hello"}"#.to_vec();
    let then = |line: &[u8]| [&document[..], b"\r\n\n", line].concat();
    // name, content, options, line (0: the whole file), what the text must have
    #[rustfmt::skip]
    let cases: Vec<(&str, Vec<u8>, DataOptions, u64, &[&str])> = vec![
        ("a.txt", b"".to_vec(), options(64), 0, &["something to learn", "an empty file"]),
        ("a.jsonl", b"".to_vec(), options(64), 0, &["an empty file"]),
        ("a.jsonl", b"".to_vec(), of(DataKind::Chats), 0, &["an empty file"]),
        ("a.jsonl", b"\n\n".to_vec(), of(DataKind::Chats), 0, &["less than two tokens"]),
        ("a", b" \n\r\n\t".to_vec(), options(64), 0, &["an empty"]),
        ("a.txt", b" \n".to_vec(), of(DataKind::Text), 0, &["an empty text"]),
        ("a.txt", b"one\ntwo\n\xff\xfe".to_vec(), options(64), 3, &["UTF-8", "0xFF at byte 1"]),
        ("a.jsonl", then(b"{\"text\": \"\xe9\"}"), options(64), 3, &["UTF-8", "0xE9 at byte 11"]),
        ("a.txt", b"\xff\xfeh\0i\0".to_vec(), options(64), 1, &["Save the file as UTF-8"]),
        ("a.jsonl", b"no json".to_vec(), options(64), 1, &["expected JSON", "no json", "plain text"]),
        ("a", then(b"{\"text\": "), options(64), 3, &["expected JSON", "EOF while parsing", "at byte 9"]),
        ("a", b"{\"text\": \"a\",\n\"more\": 1}".to_vec(), options(64), 1, &["one whole object"]),
        ("a.json", b"[{\"text\": \"a\"}]".to_vec(), options(64), 1, &["a JSON object", "one whole object"]),
        ("a", then(b"\"hello\""), options(64), 3, &["a JSON object", "\"hello\""]),
        ("a", br#"{"question": "a", "answer": "b"}"#.to_vec(), options(64), 1, &["{\"text\"", "{\"messages\"", "{\"prompt\"", "\"question\", \"answer\"", "Rename"]),
        ("a", br#"{"prompt": "a", "response": "b"}"#.to_vec(), options(64), 1, &["\"prompt\", \"response\""]),
        ("a.jsonl", b"{}".to_vec(), options(64), 1, &["one without keys"]),
        ("a", br#"{"conversations": [{"from": "human", "value": "a"}]}"#.to_vec(), options(64), 1, &["Rewrite \"conversations\" as \"messages\""]),
        ("a", br#"{"conversations": []}"#.to_vec(), of(DataKind::Chats), 1, &["Rewrite \"conversations\" as \"messages\""]),
        ("a", br#"{"text": "a", "messages": []}"#.to_vec(), options(64), 1, &["several kinds"]),
        ("a", then(br#"{"prompt": "a", "completion": "b"}"#), options(64), 3, &["{\"text\": \"..\"}, as on line 1", "{\"prompt\"", "one kind"]),
        ("a", document.clone(), of(DataKind::Completions), 1, &["{\"prompt\"", "one with \"text\""]),
        ("a", then(br#"{"text": ""}"#), options(64), 3, &["a text in \"text\"", "an empty one"]),
        ("a", then(br#"{"text": 5}"#), options(64), 3, &["a text in \"text\"", "got 5"]),
        ("a", then(br#"{"text": null}"#), options(64), 3, &["got null"]),
        ("a", br#"{"prompt": " ", "completion": "b"}"#.to_vec(), options(64), 1, &["a text in \"prompt\"", "an empty one"]),
        ("a", br#"{"prompt": "a", "completion": ""}"#.to_vec(), options(64), 1, &["a text in \"completion\"", "an empty one"]),
        ("a", br#"{"prompt": "a", "completion": ["b"]}"#.to_vec(), options(64), 1, &["a text in \"completion\"", "[\"b\"]"]),
        ("a", chat(json!("hello")), options(64), 1, &["an array of one message or more", "\"hello\""]),
        ("a", chat(json!([])), options(64), 1, &["an array of one message or more", "got []"]),
        ("a", chat(json!(["hello"])), options(64), 1, &["an object as message 1"]),
        ("a", chat(json!([user, { "content": "a" }])), options(64), 1, &["\"role\" of message 2", "one with \"content\""]),
        ("a", chat(json!([user, { "role": 1, "content": "a" }])), options(64), 1, &["\"role\" of message 2", "got 1"]),
        ("a", chat(json!([user, { "role": "gpt", "content": "a" }])), options(64), 1, &["system, developer, user, assistant, tool", "\"gpt\""]),
        ("a", chat(json!([user, { "role": "assistant" }])), options(64), 1, &["\"content\" of message 2", "one with \"role\""]),
        ("a", chat(json!([user, { "role": "assistant", "content": "" }])), options(64), 1, &["\"content\" of message 2", "an empty one"]),
        ("a", chat(json!([user, { "role": "assistant", "content": [{ "type": "text", "text": "a" }] }])), options(64), 1, &["\"content\" of message 2", "Write it as a string"]),
        ("a", chat(json!([{ "role": "assistant", "content": "a" }, user])), options(64), 1, &["a question as the first message"]),
        ("a", chat(json!([user])), options(64), 0, &["1 sequences of which no label counts (0 were cut"]),
        ("a.txt", b"hello".to_vec(), options(1), 0, &["tokens of a sequence", "2 or more", "got 1"]),
    ];
    let tokenizer = made_up(&[]);
    let mut table = Table::new("errors");
    for (name, content, options, line, parts) in cases {
        let row = format!("{name} {:?}", String::from_utf8_lossy(&content));
        table.row(&row, refused(read(name, &content, &options, &tokenizer), name, line, parts));
    }

    // What the template and the tokenizer say stays in the error.
    let asks = |source: &str| ChatTemplate::new("picky", source, None, None).unwrap();
    let answer = json!({ "role": "assistant", "content": "hi" });
    let file = [then(b""), chat(json!([user, answer, user, answer]))].concat();
    let file = &file[document.len() + 3..]; // one line
    let last = "{% for m in messages %}{{ m.content if loop.last else m.content|upper }}{% endfor %}";
    let refuses = "{{ raise_exception('roles must alternate') }}";
    let many = "{% for m in messages %}{{ messages|length }}{{ m.content }}{% endfor %}";
    for (source, parts) in [
        (last, &["writes it otherwise", "(picky)", "Choose another template"][..]),
        (many, &["writes it otherwise"]),
        (refuses, &["chat template does not take it", "roles must alternate"]),
    ] {
        let outcome = read_data_from(Path::new("a"), file, &options(64), &tokenizer, Some(&asks(source)));
        table.row(source, refused(outcome, "a", 1, parts));
    }
    let outcome = read_data_from(Path::new("a"), file, &options(64), &tokenizer, None);
    table.row("no template", refused(outcome, "a", 1, &["a chat template", "--chat-template"]));
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", "none");
    let none = Tokenizer::from_gguf(&Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap()).unwrap();
    let outcome = read("a.txt", b"\nhello", &options(64), &none);
    table.row("no vocabulary", refused(outcome, "a.txt", 2, &["the tokenizer does not take it", "no vocabulary"]));

    let missing = read_data(Path::new("there/is/none.txt"), &options(64), &tokenizer, None);
    table.row("no file", refused(missing, "there/is/none.txt", 0, &["cannot read"]));
    table.finish();
}

/// An error of this line (0: of the whole file), that names the file and has these parts, causes included.
fn refused(outcome: Read, name: &str, line: u64, parts: &[&str]) -> Result<(), String> {
    let Err(error) = outcome else { return Err("was read".into()) };
    let at = if let Error::Data { line, .. } = error { line } else { 0 };
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(source) = cause {
        text += &format!(": {source}");
        cause = source.source();
    }
    let names = text.contains(name) || matches!(error, Error::Argument { .. });
    if at == line && names && parts.iter().all(|part| text.contains(part)) {
        return Ok(());
    }
    Err(format!("{text:?} of line {at}; expected {parts:?} of line {line}"))
}

#[test]
fn files_are_read() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("train_data.jsonl");
    let content = lines(&[json!({ "text": "hello" }), json!({ "text": "he" })]);
    std::fs::write(&path, &content).unwrap();
    let tokenizer = made_up(&[]);
    let got = read_data(&path, &DataOptions::default(), &tokenizer, None).unwrap();
    assert_eq!(got, read("a.jsonl", &content, &options(512), &tokenizer).unwrap());
}

/// Sequences of lengths from 1 to `most`, each known by its first id.
fn numbered(n: u32, most: u32) -> Vec<Sequence> {
    let mut random = Random::new(5);
    (0..n)
        .map(|i| {
            let length = 1 + random.below(most) as usize;
            Sequence { ids: vec![i; length], labels: vec![i; length] }
        })
        .collect()
}

fn names(sequences: &[Sequence]) -> Vec<u32> {
    sequences.iter().map(|sequence| sequence.ids[0]).collect()
}

#[test]
fn splits_are_whole_and_the_same_for_a_seed() {
    let mut table = Table::new("splits");
    #[rustfmt::skip]
    let cases = [(10, 0.0, 0), (10, 0.2, 2), (10, 0.001, 1), (10, 0.999, 9), (2, 0.5, 1), (0, 0.0, 0), (1, 0.0, 0), (1000, 0.1, 100)];
    for (n, fraction, want) in cases {
        let (training, validation) = split(numbered(n, 3), fraction, 7).unwrap();
        let again = split(numbered(n, 3), fraction, 7).unwrap();
        let (training, validation, again) = (names(&training), names(&validation), names(&again.1));
        let mut all = [training.clone(), validation.clone()].concat();
        all.sort_unstable();
        let outcome = equal("validation", validation.len(), want)
            .and(equal("all", all, (0..n).collect()))
            .and(equal("again", &again, &validation))
            .and(equal("order", training.is_sorted() && validation.is_sorted(), true));
        table.row(&format!("{n} {fraction}"), outcome);
    }
    let chosen = |seed| names(&split(numbered(1000, 3), 0.1, seed).unwrap().1);
    table.row("another seed", equal("differs", chosen(1) != chosen(2), true));
    for (n, fraction) in [(10, 1.0), (10, -0.1), (10, f64::NAN), (1, 0.5), (0, 0.5)] {
        let fails = matches!(split(numbered(n, 3), fraction, 7), Err(Error::Argument { .. }));
        table.row(&format!("{n} {fraction}"), equal("refused", fails, true));
    }
    table.finish();
}

#[test]
fn batches_go_on_from_any_position() {
    let mut table = Table::new("batches");
    for (n, batch) in [(1, 1), (1, 4), (7, 3), (8, 4), (50, 8), (20, 6)] {
        let new = || Batches::new(numbered(n, 9), batch, 3).unwrap();
        let (mut batches, mut seen) = (new(), Vec::new()); // (position before, epoch, steps of the epoch, the batch)
        while batches.epoch() < 4 {
            let (position, epoch, steps) = (batches.position(), batches.epoch(), batches.steps_per_epoch());
            seen.push((position, epoch, steps, batches.next_batch()));
        }
        let outcome = || {
            for (i, (position, ..)) in seen.iter().enumerate() {
                let mut later = new();
                later.set_position(*position);
                let mut moved = new();
                moved.next_batch();
                moved.set_position(*position);
                for (_, _, _, want) in &seen[i..] {
                    equal(&format!("from {position}"), &later.next_batch(), want)?;
                    equal(&format!("moved to {position}"), &moved.next_batch(), want)?;
                }
            }
            for epoch in 0..4 {
                let of: Vec<_> = seen.iter().filter(|step| step.1 == epoch).collect();
                let mut all: Vec<u32> = of.iter().flat_map(|step| names(&step.3)).collect();
                all.sort_unstable();
                equal("an epoch", all, (0..n).collect())?;
                equal("steps", of.iter().all(|step| step.2 == of.len() as u64), true)?;
                for (_, _, _, sequences) in &of {
                    equal("fits", (1..=batch).contains(&sequences.len()), true)?;
                }
                equal("steps", of.len(), (n as usize).div_ceil(batch))?;
            }
            Ok(())
        };
        table.row(&format!("{n} sequences by {batch}"), outcome());
    }

    let from = |batch: usize, seed: u64, position: u64| {
        let mut batches = Batches::new(numbered(50, 9), batch, seed).unwrap();
        batches.set_position(position);
        batches.next_batch()
    };
    let order = |seed: u64, epoch: u64| names(&from(50, seed, 50 * epoch));
    let orders: HashSet<Vec<u32>> =
        (0..6).flat_map(|seed| (0..6).map(move |epoch| (seed, epoch))).map(|(s, e)| order(s, e)).collect();
    table.row("orders differ by seed and epoch", equal("orders", orders.len(), 36));
    let far = from(8, 0, u64::MAX / 2).len();
    table.row("a far position", equal("one or more", (1..=8).contains(&far), true));
    #[rustfmt::skip]
    let refused = [
        ("no sequences", Batches::new(Vec::new(), 1, 0)),
        ("batches of none", Batches::new(numbered(3, 9), 0, 0)),
    ];
    for (name, outcome) in refused {
        table.row(name, equal("refused", matches!(outcome, Err(Error::Argument { .. })), true));
    }
    table.finish();
}
