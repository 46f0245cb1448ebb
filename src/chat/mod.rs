//! Chat templates: messages to the text of a prompt, as the model's file says or by one of the well-known formats.
//! The templates are Jinja2 written for Python's `transformers`; `jinja.rs` gives them what they expect to find.

mod conversation;
mod datetime;
mod guard;
mod jinja;
mod json;
mod known;

use crate::chat::guard::{Guard, Roles};
use crate::error::{Error, Result};
use crate::gguf::Gguf;
#[cfg(feature = "tokenizer")]
use crate::tokenizer::{Encode, Tokenizer};
use minijinja::Environment;
use serde_json::Value as Json;
use std::ops::Range;

pub use conversation::Conversation;
pub use datetime::DateTime;
pub use known::WELL_KNOWN;

/// GGUF key of the template, and with `.NAME` behind it that of a named one.
const KEY: &str = "tokenizer.chat_template";
/// The name that asks for the plain key.
const DEFAULT: &str = "default";

/// What a template is rendered with.
#[derive(Debug, Clone, Copy)]
pub struct ChatInput<'a> {
    /// An array of objects with at least a `role`; `content` is a string or what else the template understands.
    pub messages: &'a Json,
    /// An array of tool descriptions.
    pub tools: Option<&'a Json>,
    /// Whether the text ends with the beginning of the assistant's answer.
    pub add_generation_prompt: bool,
    /// What the template's `strftime_now` tells.
    pub now: DateTime,
}

/// A compiled chat template.
#[derive(Debug)]
pub struct ChatTemplate {
    name: String,
    source: String,
    bos: Option<String>,
    eos: Option<String>,
    environment: Environment<'static>,
}

impl ChatTemplate {
    /// The template of a model's file: its plain one, or the one of this name. A name that the file does not have may
    /// be one of [`WELL_KNOWN`]. Only the chosen template is compiled, so a broken one disturbs nothing else.
    ///
    /// # Errors
    /// [`Error::Template`] where there is no such template (with the names that there are) and where it is broken.
    pub fn from_gguf(gguf: &Gguf, name: Option<&str>) -> Result<ChatTemplate> {
        let key = match name {
            None | Some(DEFAULT) => KEY.to_string(),
            Some(name) => format!("{KEY}.{name}"),
        };
        let bos = special_token(gguf, "tokenizer.ggml.bos_token_id", 1)?;
        let eos = special_token(gguf, "tokenizer.ggml.eos_token_id", 2)?;
        let (bos, eos) = (bos.as_deref(), eos.as_deref());
        if let Some(source) = gguf.str(&key)?.filter(|source| !source.trim().is_empty()) {
            return ChatTemplate::new(&key, source, bos, eos);
        }
        if let Some(name) = name.filter(|name| WELL_KNOWN.contains(name)) {
            return ChatTemplate::well_known(name, bos, eos);
        }
        let has = match ChatTemplate::names(gguf) {
            names if names.is_empty() => "the file has no chat template".to_string(),
            names => format!("the file has no such template, only {}", names.join(", ")),
        };
        let what =
            format!("{has}. Choose one with --chat-template NAME|FILE; names known here are {}", WELL_KNOWN.join(", "));
        Err(Error::Template { name: name.unwrap_or(DEFAULT).into(), what })
    }

    /// The names of the templates in a model's file, "default" for the plain one.
    pub fn names(gguf: &Gguf) -> Vec<String> {
        let keys = gguf.metadata().iter().filter_map(|(key, _)| key.strip_prefix(KEY));
        keys.filter_map(|rest| if rest.is_empty() { Some(DEFAULT) } else { rest.strip_prefix('.') })
            .map(String::from)
            .collect()
    }

    /// One of [`WELL_KNOWN`].
    pub fn well_known(name: &str, bos: Option<&str>, eos: Option<&str>) -> Result<ChatTemplate> {
        let source = known::source(name).ok_or_else(|| Error::Template {
            name: name.into(),
            what: format!("not known here; the known ones are {}", WELL_KNOWN.join(", ")),
        })?;
        ChatTemplate::new(name, source, bos, eos)
    }

    /// Compiles a template. `name` appears in errors; `bos` and `eos` are the texts of the model's special tokens, None
    /// where it has none.
    ///
    /// # Errors
    /// [`Error::Template`] with the line of a syntax error.
    pub fn new(name: &str, source: &str, bos: Option<&str>, eos: Option<&str>) -> Result<ChatTemplate> {
        let environment = jinja::environment(source).map_err(|e| jinja::explain(name, &e))?;
        Ok(ChatTemplate {
            name: name.into(),
            source: source.into(),
            bos: bos.map(String::from),
            eos: eos.map(String::from),
            environment,
        })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// The prompt.
    ///
    /// # Errors
    /// [`Error::Template`]: where in the template, and its own message if it refuses the messages (a system role that
    /// the model does not have, roles that do not alternate). [`Error::Argument`]: messages that are not such.
    pub fn render(&self, input: &ChatInput) -> Result<String> {
        check(input)?;
        self.render_values(input.messages, input.tools, input)
    }

    /// The prompt, and the byte ranges of it in which someone typed the text of a control token: given to the
    /// tokenizer, these stay plain text, and only the template can end a turn or begin one. They are sorted and
    /// do not overlap.
    ///
    /// `control_texts` are the texts of the control tokens. Those of user-defined tokens may be among them, to no
    /// effect: tokenizers match these in plain text as well.
    pub fn render_guarded(
        &self,
        input: &ChatInput,
        control_texts: &[impl AsRef<str>],
    ) -> Result<(String, Vec<Range<usize>>)> {
        let plain = self.render(input)?;
        let (prompt, ranges) = self.render_with_guard(input, control_texts, Roles::All)?;
        if prompt != plain {
            // The template looks for one of these texts itself: some split an answer at </think>, which may be a
            // control token. So the answers stay as they are, if that is all; what others typed stays guarded always.
            let others = self.render_with_guard(input, control_texts, Roles::AllButAssistant)?;
            if others.0 == plain {
                return Ok(others);
            }
        }
        Ok((prompt, ranges))
    }

    /// The tokens of a prompt. Control tokens that someone typed into a message stay plain text.
    ///
    /// # Errors
    /// [`Error::Template`] if the template refuses the messages, [`Error::Tokenizer`].
    #[cfg(feature = "tokenizer")]
    pub fn prompt(&self, tokenizer: &Tokenizer, input: &ChatInput) -> Result<Vec<u32>> {
        let (text, literal) = self.render_guarded(input, &tokenizer.control_texts())?;
        let add_special = !self.begins_with_bos(&text, &literal);
        tokenizer.encode(text.as_bytes(), &Encode { add_special, parse_special: true, literal: &literal })
    }

    /// Whether a rendered prompt begins with the BOS token, so that the tokenizer must not add another. `guarded` are
    /// the ranges of [`ChatTemplate::render_guarded`]: a BOS that someone typed is none.
    pub fn begins_with_bos(&self, prompt: &str, guarded: &[Range<usize>]) -> bool {
        let typed = guarded.first().is_some_and(|range| range.start == 0);
        self.bos.as_ref().is_some_and(|bos| !bos.is_empty() && prompt.starts_with(bos.as_str())) && !typed
    }

    fn render_with_guard(
        &self,
        input: &ChatInput,
        control_texts: &[impl AsRef<str>],
        roles: Roles,
    ) -> Result<(String, Vec<Range<usize>>)> {
        let known = format!("{}{}{:?}", self.source, input.messages, input.tools.map(Json::to_string));
        let mut guard = Guard::new(control_texts, known);
        let messages = guard.messages(input.messages, roles)?;
        let tools = input.tools.map(|tools| guard.value(tools)).transpose()?;
        let prompt = self.render_values(&messages, tools.as_ref(), input)?;
        Ok(guard.put_back(&prompt))
    }

    fn render_values(&self, messages: &Json, tools: Option<&Json>, input: &ChatInput) -> Result<String> {
        let tokens = (self.bos.as_deref(), self.eos.as_deref());
        let rendered = jinja::render(&self.environment, input, (messages, tools), tokens);
        rendered.map_err(|e| jinja::explain(&self.name, &e))
    }
}

/// The text of a special token; `fallback` is what SentencePiece vocabularies mean where the key is absent.
fn special_token(gguf: &Gguf, key: &str, fallback: u32) -> Result<Option<String>> {
    let sentence_piece = gguf.str("tokenizer.ggml.model")? == Some("llama");
    let id = gguf.u32(key)?.or(sentence_piece.then_some(fallback));
    let text = match (id, gguf.strings("tokenizer.ggml.tokens")?) {
        (Some(id), Some(tokens)) => tokens.get(id as usize),
        _ => None, // an id outside of the vocabulary is as good as none
    };
    Ok(text.map(|text| String::from_utf8_lossy(text).into_owned()))
}

fn check(input: &ChatInput) -> Result<()> {
    let wrong = |what: String, got: &Json| {
        let got: String = got.to_string().chars().take(80).collect();
        Err(Error::Argument { what, expected: "an array of objects, each with a \"role\"".into(), got })
    };
    let Some(messages) = input.messages.as_array() else { return wrong("messages".into(), input.messages) };
    match messages.iter().position(|message| !message.get("role").is_some_and(Json::is_string)) {
        Some(i) => wrong(format!("message {i}"), &messages[i]),
        None => Ok(()),
    }
}
