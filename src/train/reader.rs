//! One file of training data on its way to sequences: lines come in, what they say is checked, tokenized and labelled.

use super::data::{DataKind, DataOptions, Report};
use super::{IGNORED, Sequence};
use crate::chat::{ChatInput, ChatTemplate};
use crate::error::{Error, Result};
use crate::tokenizer::{Encode, Tokenizer};
use serde_json::{Map, Value as Json};
use std::fmt::Display;
use std::path::Path;

/// A text is given to the tokenizer in pieces of about this many bytes.
const PIECE: usize = 1 << 20;

const ROLES: [&str; 5] = ["system", "developer", "user", "assistant", "tool"];

pub(super) struct Reader<'a> {
    path: &'a Path,
    options: &'a DataOptions,
    tokenizer: &'a Tokenizer,
    template: Option<&'a ChatTemplate>,
    controls: Vec<String>,
    line: u64, // from 1
    kind: Option<DataKind>,
    first: u64,    // the line that told the kind
    text: String,  // of a plain text
    row: Vec<u32>, // packed tokens that are in no sequence yet
    sequences: Vec<Sequence>,
    cut: usize,
    dropped: usize,
}

impl<'a> Reader<'a> {
    pub fn new(
        path: &'a Path,
        options: &'a DataOptions,
        tokenizer: &'a Tokenizer,
        template: Option<&'a ChatTemplate>,
    ) -> Reader<'a> {
        Reader {
            path,
            options,
            tokenizer,
            template,
            controls: tokenizer.control_texts(),
            line: 0,
            kind: options.kind,
            first: 0,
            text: String::new(),
            row: Vec::new(),
            sequences: Vec::new(),
            cut: 0,
            dropped: 0,
        }
    }

    /// The next line, with its end.
    pub fn take(&mut self, line: &[u8]) -> Result<()> {
        self.line += 1;
        let text = std::str::from_utf8(line).map_err(|e| {
            let at = e.valid_up_to();
            let got = format!("the byte 0x{:02X} at byte {} of the line", line[at], at + 1);
            self.wrong("UTF-8", got, "Save the file as UTF-8")
        })?;
        let text = if self.line == 1 { text.strip_prefix('\u{feff}').unwrap_or(text) } else { text };
        let (text, end) = match text.strip_suffix('\n') {
            Some(text) => (text.strip_suffix('\r').unwrap_or(text), "\n"),
            None => (text, ""),
        };
        let is_blank = text.trim().is_empty();
        if self.kind.is_none() && !is_blank && !self.is_jsonl(text) {
            self.kind = Some(DataKind::Text);
        }
        match self.kind {
            Some(DataKind::Text) => self.text.extend([text, end]),
            None if is_blank => self.text.extend([text, end]), // perhaps a text's beginning
            _ if is_blank => {}
            _ => self.object(text)?,
        }
        Ok(())
    }

    /// Whether a file whose first line is this one holds JSONL.
    fn is_jsonl(&self, line: &str) -> bool {
        match self.path.extension().and_then(|extension| extension.to_str()).map(str::to_lowercase).as_deref() {
            Some("txt") => false,
            Some("jsonl" | "ndjson" | "json") => true,
            _ => line.trim_start().strip_prefix('{').is_some_and(|rest| rest.trim_start().starts_with('"')),
        }
    }

    fn object(&mut self, line: &str) -> Result<()> {
        let hint = "A line is one whole object; a plain text is named .txt or told by its kind (`--kind text`)";
        let json: Json = serde_json::from_str(line).map_err(|e| {
            let text = e.to_string();
            let why = text.split(" at line ").next().unwrap_or(&text); // the line would be 1 always
            self.wrong("JSON", format!("{} ({why} at byte {})", short(line), e.column()), hint)
        })?;
        let Json::Object(object) = json else { return Err(self.wrong("a JSON object", short(line), hint)) };
        let kind = match self.options.kind {
            Some(kind) if kind.is_of(&object) => kind,
            Some(kind) => return Err(self.wrong(kind.shape(), keys(&object), rewrite(&object))),
            None => self.kind_of(&object)?,
        };
        match kind {
            DataKind::Text => unreachable!("a text has no objects"),
            DataKind::Documents => self.document(&object),
            DataKind::Completions => self.completion(&object),
            DataKind::Chats => self.chat(&object),
        }
    }

    /// The kind of an object, which must be that of the first.
    fn kind_of(&mut self, object: &Map<String, Json>) -> Result<DataKind> {
        let mut kinds = DataKind::JSONL.into_iter().filter(|kind| kind.is_of(object));
        let (kind, second) = (kinds.next(), kinds.next());
        let shapes = || DataKind::JSONL.map(DataKind::shape).join(" or ");
        let Some(kind) = kind else { return Err(self.wrong(shapes(), keys(object), rewrite(object))) };
        if second.is_some() {
            let hint = "These are keys of several kinds: tell which one is meant (`--kind`)";
            return Err(self.wrong(format!("one of {}", shapes()), keys(object), hint));
        }
        match self.kind {
            None => (self.kind, self.first) = (Some(kind), self.line),
            Some(first) if first != kind => {
                let expected = format!("{}, as on line {}", first.shape(), self.first);
                return Err(self.wrong(expected, kind.shape(), "A file holds one kind: make two files of it"));
            }
            Some(_) => {}
        }
        Ok(kind)
    }

    fn document(&mut self, object: &Map<String, Json>) -> Result<()> {
        let mut tokens = self.tokens(self.string(object, "text", "")?)?;
        self.end(&mut tokens);
        if self.options.pack {
            self.row.extend(tokens);
            self.pack();
        } else {
            self.add(&tokens, 0..tokens.len());
        }
        Ok(())
    }

    fn completion(&mut self, object: &Map<String, Json>) -> Result<()> {
        let (prompt, completion) = (self.string(object, "prompt", "")?, self.string(object, "completion", "")?);
        let text = format!("{prompt}{completion}");
        let encoded = self.tokenizer.encode_cut(text.as_bytes(), &Encode::default(), &[prompt.len()]);
        let (mut tokens, marks) = encoded.map_err(|e| self.refused("the tokenizer", e))?;
        self.end(&mut tokens);
        self.add(&tokens, marks[0]..tokens.len());
        Ok(())
    }

    fn chat(&mut self, object: &Map<String, Json>) -> Result<()> {
        let messages = self.messages(object)?;
        let Some(template) = self.template else {
            return Err(self.wrong(
                "a chat template for the chats",
                "a model without one",
                "Give one (`--chat-template`): a file, or the name of a well-known format",
            ));
        };
        // The beginning of the conversation, as far as the chat command would show it to the model.
        let render = |count: usize, add_generation_prompt: bool| {
            let messages = Json::Array(messages[..count].to_vec());
            let tools = object.get("tools").filter(|tools| !tools.is_null());
            let input = ChatInput { messages: &messages, tools, add_generation_prompt, now: self.options.now };
            template.render_guarded(&input, &self.controls).map_err(|e| self.refused("the chat template", e))
        };
        let answers: Vec<usize> = (0..messages.len()).filter(|&i| messages[i]["role"] == "assistant").collect();
        let Some(last) = answers.last() else {
            self.dropped += 1;
            return Ok(());
        };
        let (text, literal) = render(last + 1, false)?; // what follows the last answer is not learned
        let mut cuts: Vec<usize> = Vec::new();
        for i in answers {
            let (prompt, answered) = (render(i, true)?.0, render(i + 1, false)?.0);
            let follows = cuts.last().is_none_or(|&end| end <= prompt.len());
            if !(follows && answered.starts_with(&prompt) && text.starts_with(&answered)) {
                let expected = "a chat template that writes the beginning of a conversation the same whatever follows";
                let got = format!("one ({}) that writes it otherwise about message {}", template.name(), i + 1);
                let hint =
                    "Choose another template, or cut the conversation so that it has one answer, its last message";
                return Err(self.wrong(expected, got, hint));
            }
            cuts.extend([prompt.len(), answered.len()]);
        }
        let add_special = !template.begins_with_bos(&text, &literal);
        let options = Encode { add_special, parse_special: true, literal: &literal };
        let encoded = self.tokenizer.encode_cut(text.as_bytes(), &options, &cuts);
        let (tokens, marks) = encoded.map_err(|e| self.refused("the tokenizer", e))?;
        let learned = marks.chunks_exact(2).flat_map(|bounds| {
            // A template's line break behind the token that ends the turn is no part of the answer: a chat stops before it.
            let answer = &tokens[bounds[0]..bounds[1]];
            let end = answer.iter().rposition(|&id| self.tokenizer.is_end(id)).map_or(answer.len(), |end| end + 1);
            bounds[0]..bounds[0] + end
        });
        let learned: Vec<usize> = learned.collect();
        self.add(&tokens, learned);
        Ok(())
    }
    /// The messages of a chat, checked.
    fn messages<'o>(&self, object: &'o Map<String, Json>) -> Result<&'o [Json]> {
        let hint = r#"A message is {"role": "user", "content": "..", ..}"#;
        let list = object["messages"].as_array().filter(|list| !list.is_empty());
        let Some(list) = list else {
            let expected = r#"an array of one message or more in "messages""#;
            return Err(self.wrong(expected, short(&object["messages"]), hint));
        };
        for (i, message) in list.iter().enumerate() {
            let of = format!(" of message {}", i + 1);
            let Json::Object(message) = message else {
                return Err(self.wrong(format!("an object as message {}", i + 1), short(message), hint));
            };
            let role = self.string(message, "role", &of)?;
            if !ROLES.contains(&role) {
                let expected = format!("one of {} as \"role\"{of}", ROLES.join(", "));
                return Err(self.wrong(expected, format!("{role:?}"), hint));
            }
            if !message.contains_key("tool_calls") {
                self.string(message, "content", &of)?; // an answer that only calls a tool has none
            }
        }
        if list[0]["role"] == "assistant" {
            let hint = "Give the question before it, or leave the message out";
            return Err(self.wrong("a question as the first message", "an answer of the assistant", hint));
        }
        Ok(list)
    }

    /// A text of an object that is not blank.
    fn string<'o>(&self, object: &'o Map<String, Json>, key: &str, of: &str) -> Result<&'o str> {
        let expected = format!("a text in {key:?}{of}");
        match object.get(key) {
            Some(Json::String(text)) if !text.trim().is_empty() => Ok(text),
            Some(Json::String(_)) => Err(self.wrong(expected, "an empty one", "Fill it in or leave the line out")),
            Some(other) => Err(self.wrong(expected, short(other), "Write it as a string")),
            None => Err(self.wrong(expected, keys(object), "Add it or leave the line out")),
        }
    }

    /// A document's tokens, with BOS and EOS where the vocabulary asks for them.
    fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let encoded = self.tokenizer.encode_cut(text.as_bytes(), &Encode::default(), &pieces(text));
        Ok(encoded.map_err(|e| self.refused("the tokenizer", e))?.0)
    }

    /// An EOS at the end, if there is one and it is not there already.
    fn end(&self, tokens: &mut Vec<u32>) {
        tokens.extend(self.tokenizer.eos().filter(|eos| tokens.last() != Some(eos)));
    }

    /// A sequence of its own, of which the tokens at these places are learned.
    fn add(&mut self, tokens: &[u32], learned: impl IntoIterator<Item = usize>) {
        let mut labels = vec![IGNORED; tokens.len()];
        for i in learned.into_iter().filter(|&i| i > 0) {
            labels[i - 1] = tokens[i];
        }
        // What comes after the last label that counts would be computed for nothing.
        let end = |labels: &[u32]| labels.iter().rposition(|&label| label != IGNORED).map_or(0, |last| last + 1);
        let (whole, context) = (end(&labels), self.options.context as usize);
        self.cut += (whole > context) as usize;
        labels.truncate(end(&labels[..whole.min(context)]));
        if labels.is_empty() {
            self.dropped += 1;
        } else {
            self.sequences.push(Sequence { ids: tokens[..labels.len()].to_vec(), labels });
        }
    }

    /// Moves whole sequences out of the row; each needs the token behind it as its last label.
    fn pack(&mut self) {
        let context = self.options.context as usize;
        let mut start = 0;
        while self.row.len() - start > context {
            let (ids, labels) = (&self.row[start..start + context], &self.row[start + 1..=start + context]);
            self.sequences.push(Sequence { ids: ids.to_vec(), labels: labels.to_vec() });
            start += context;
        }
        self.row.drain(..start);
    }

    pub fn finish(mut self) -> Result<(Vec<Sequence>, Report)> {
        let nothing = |got: String| Error::InFile {
            path: self.path.into(),
            source: Box::new(Error::Argument {
                what: "training data".into(),
                expected: "something to learn".into(),
                got,
            }),
        };
        let Some(kind) = self.kind.filter(|_| self.line > 0) else { return Err(nothing("an empty file".into())) };
        if kind == DataKind::Text {
            let text = std::mem::take(&mut self.text);
            if text.trim().is_empty() {
                return Err(nothing("an empty text".into()));
            }
            self.row = self.tokens(&text)?;
            drop(text);
            self.pack();
        }
        if self.row.len() >= 2 {
            let mut labels = self.row[1..].to_vec();
            labels.push(IGNORED);
            self.sequences.push(Sequence { ids: self.row, labels });
        }
        let (cut, dropped) = (self.cut, self.dropped);
        if self.sequences.is_empty() {
            let got = match dropped {
                0 => "less than two tokens".into(),
                _ => format!("{dropped} sequences of which no label counts ({cut} were cut at the context)"),
            };
            return Err(nothing(got));
        }
        let sum = |count: fn(&Sequence) -> usize| self.sequences.iter().map(|sequence| count(sequence) as u64).sum();
        let (tokens, counted_labels) = (sum(|sequence| sequence.ids.len()), sum(Sequence::counted));
        let report = Report { kind, sequences: self.sequences.len(), tokens, counted_labels, cut, dropped };
        Ok((self.sequences, report))
    }

    fn wrong(&self, expected: impl Display, got: impl Display, hint: impl Display) -> Error {
        let what = format!("expected {expected}, got {got}. {hint}");
        Error::Data { path: self.path.into(), line: self.line, what, source: None }
    }

    fn refused(&self, by: &str, source: Error) -> Error {
        let what = format!("{by} does not take it. Change the line or leave it out");
        Error::Data { path: self.path.into(), line: self.line, what, source: Some(Box::new(source)) }
    }
}

/// Where a long text is cut for the tokenizer, which needs many times the memory of what it is given at once: between two lines
/// whose tokens would hardly join anyway.
fn pieces(text: &str) -> Vec<usize> {
    let (bytes, mut cuts, mut at) = (text.as_bytes(), Vec::new(), PIECE);
    let line_break =
        |bytes: &[u8]| bytes[1] == b'\n' && !bytes[0].is_ascii_whitespace() && !bytes[2].is_ascii_whitespace();
    while let Some(found) = bytes.get(at..).and_then(|rest| rest.windows(3).position(line_break)) {
        cuts.push(at + found + 2);
        at += found + 2 + PIECE;
    }
    cuts
}

/// "one with the keys a, b", for errors.
fn keys(object: &Map<String, Json>) -> String {
    match object.keys().map(|key| format!("{key:?}")).collect::<Vec<_>>() {
        keys if keys.is_empty() => "one without keys".into(),
        keys => short(format!("one with {}", keys.join(", "))),
    }
}

/// What to do about keys that are not ours.
fn rewrite(object: &Map<String, Json>) -> &'static str {
    if object.contains_key("conversations") {
        r#"Rewrite "conversations" as "messages", with "role" (user, assistant) for "from" and "content" for "value""#
    } else {
        "Rename its keys"
    }
}

/// The beginning of what was found, for errors.
fn short(found: impl Display) -> String {
    let text = found.to_string();
    match text.char_indices().nth(80) {
        Some((end, _)) => format!("{} ..", &text[..end]),
        None => text,
    }
}
