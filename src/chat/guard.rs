//! Keeps the texts of control tokens that someone typed apart from those that the template writes.
//! While the template runs, one private-use character stands for each of them: such a character is no white space and
//! equals no word, so templates that trim, split or compare go on as before.

use crate::chat::json;
use crate::error::{Error, Result};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::ops::Range;

/// Whose messages are guarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Roles {
    All,
    AllButAssistant,
}

/// Private-use characters of 16 bits: JSON with ensure_ascii writes each as a single \u escape.
const PRIVATE_USE: std::ops::RangeInclusive<char> = '\u{e000}'..='\u{f8ff}';

pub struct Guard<'a> {
    /// Control texts by their first byte.
    control_texts: HashMap<u8, Vec<&'a str>>,
    /// Characters that neither the input nor the template has.
    free: Box<dyn Iterator<Item = char>>,
    /// Which character stands for which text.
    stand_ins: Vec<(char, String)>,
}

impl<'a> Guard<'a> {
    /// `known` is every text in which a stand-in must not occur.
    pub fn new(control_texts: &'a [impl AsRef<str>], known: String) -> Guard<'a> {
        let mut by_first = HashMap::<u8, Vec<&str>>::new();
        // Templates trim white space and compare words (roles, names of fields), so these are not replaced; no turn ends
        // at one.
        let plain = |char: char| char.is_alphanumeric() || char.is_whitespace();
        for text in control_texts.iter().map(AsRef::as_ref).filter(|text| !text.chars().all(plain)) {
            by_first.entry(text.as_bytes()[0]).or_default().push(text);
        }
        let free = PRIVATE_USE.filter(move |&char| !known.contains(char) && !known.contains(&escaped(char)));
        Guard { control_texts: by_first, free: Box::new(free), stand_ins: Vec::new() }
    }

    pub fn messages(&mut self, messages: &Json, roles: Roles) -> Result<Json> {
        let Some(list) = messages.as_array() else { return self.value(messages) };
        let kept = |message: &Json| roles == Roles::AllButAssistant && message["role"] == "assistant";
        list.iter().map(|message| if kept(message) { Ok(message.clone()) } else { self.value(message) }).collect()
    }

    /// The value with a stand-in for every control text in its strings and keys.
    pub fn value(&mut self, value: &Json) -> Result<Json> {
        Ok(match value {
            Json::String(text) => Json::String(self.text(text)?),
            Json::Array(items) => items.iter().map(|item| self.value(item)).collect::<Result<_>>()?,
            Json::Object(entries) => {
                let entries = entries.iter().map(|(key, value)| Ok((self.text(key)?, self.value(value)?)));
                Json::Object(entries.collect::<Result<_>>()?)
            }
            _ => value.clone(),
        })
    }

    fn text(&mut self, text: &str) -> Result<String> {
        let mut out = String::with_capacity(text.len());
        let mut done = 0;
        for run in self.runs(text) {
            out += &text[done..run.start];
            out.push(self.stand_in(&text[run.clone()])?);
            done = run.end;
        }
        Ok(out + &text[done..])
    }

    /// Where control texts occur; occurrences that overlap are one run.
    fn runs(&self, text: &str) -> Vec<Range<usize>> {
        let mut runs: Vec<Range<usize>> = Vec::new();
        for (start, byte) in text.bytes().enumerate() {
            let Some(candidates) = self.control_texts.get(&byte) else { continue };
            let found = candidates.iter().filter(|control| text.as_bytes()[start..].starts_with(control.as_bytes()));
            let Some(end) = found.map(|control| start + control.len()).max() else { continue };
            match runs.last_mut().filter(|run| start < run.end) {
                Some(run) => run.end = run.end.max(end),
                None => runs.push(start..end),
            }
        }
        runs
    }

    fn stand_in(&mut self, text: &str) -> Result<char> {
        if let Some((char, _)) = self.stand_ins.iter().find(|(_, known)| known == text) {
            return Ok(*char);
        }
        let char = self.free.next().ok_or_else(|| Error::Argument {
            what: "messages".into(),
            expected: "at most 6400 different texts of control tokens and private-use characters".into(),
            got: "more".into(),
        })?;
        self.stand_ins.push((char, text.to_string()));
        Ok(char)
    }

    /// The rendered prompt with the texts in their places again, and where these are.
    pub fn put_back(&self, prompt: &str) -> (String, Vec<Range<usize>>) {
        let mut out = String::with_capacity(prompt.len());
        let mut ranges = Vec::new();
        let mut rest = prompt;
        while let Some(first) = rest.chars().next() {
            // A template that writes JSON in ASCII has escaped the stand-in, and would have escaped the text.
            let found = self.stand_ins.iter().find_map(|(char, text)| match first {
                '\\' => rest.strip_prefix(&escaped(*char)).map(|rest| (rest, json::escape(text, true))),
                _ => rest.strip_prefix(*char).map(|rest| (rest, text.clone())),
            });
            let Some((after, text)) = found else {
                out.push(first);
                rest = &rest[first.len_utf8()..];
                continue;
            };
            ranges.push(out.len()..out.len() + text.len());
            out += &text;
            rest = after;
        }
        (out, ranges)
    }
}

fn escaped(char: char) -> String {
    format!("\\u{:04x}", char as u32)
}
