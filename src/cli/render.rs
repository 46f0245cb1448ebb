//! `render`: the prompt text that a chat template makes of messages, exactly.

use super::open::ModelFile;
use super::{Failure, output};
use clap::Args;
use peregrine::chat::{ChatInput, ChatTemplate, DateTime, WELL_KNOWN};
use peregrine::tokenizer::Tokenizer;
use peregrine::{Error, Gguf};
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Render {
    /// A GGUF file whose template is taken
    #[arg(required_unless_present = "template")]
    model: Option<PathBuf>,
    #[arg(long, visible_alias = "chat-template", value_name = "FILE|NAME", help = template_help())]
    template: Option<String>,
    /// Which of the model's templates, if it has several
    #[arg(long, value_name = "NAME", conflicts_with = "template")]
    template_name: Option<String>,
    /// A JSON file: {"messages":[..],"tools":[..]}
    #[arg(long, value_name = "FILE")]
    messages: PathBuf,
    /// The BOS text that the template sees [default: the model's]
    #[arg(long, value_name = "TEXT")]
    bos: Option<String>,
    /// The EOS text that the template sees [default: the model's]
    #[arg(long, value_name = "TEXT")]
    eos: Option<String>,
    /// The date and time that the template sees, as 'YYYY-MM-DD HH:MM' [default: now, UTC]
    #[arg(long, value_name = "WHEN")]
    now: Option<String>,
    /// Do not begin the assistant's answer
    #[arg(long)]
    no_generation_prompt: bool,
}

impl Render {
    pub fn run(self) -> Result<(), Failure> {
        let file = self.model.as_deref().map(|path| ModelFile::open(Some(path))).transpose()?;
        let gguf = file.as_ref().map(|file| &file.gguf);
        let names = (self.template.as_deref(), self.template_name.as_deref());
        let template = template(gguf, names, (self.bos, self.eos))?;
        let text = std::fs::read_to_string(&self.messages)
            .map_err(|source| Error::Io { path: self.messages.clone(), source })?;
        let file: serde_json::Value = serde_json::from_str(&text).map_err(|error| Error::Argument {
            what: self.messages.display().to_string(),
            expected: "a JSON object with messages".into(),
            got: error.to_string(),
        })?;
        let now = self.now.as_deref().map_or_else(|| Ok(now()), DateTime::parse)?;
        let rendered = template.render(&ChatInput {
            messages: &file["messages"],
            tools: file.get("tools").filter(|tools| !tools.is_null()),
            add_generation_prompt: !self.no_generation_prompt,
            now,
        })?;
        Ok(output::show(rendered)?)
    }
}

pub fn template_help() -> String {
    format!("A template file, or the name of a well-known one: {}", WELL_KNOWN.join(", "))
}

/// The template that the flags name (given, name): a file or a well-known one, or one of the model's.
/// `tokens` are the texts of BOS and EOS; without them the model's own.
pub fn template(
    gguf: Option<&Gguf>,
    (given, name): (Option<&str>, Option<&str>),
    tokens: (Option<String>, Option<String>),
) -> Result<ChatTemplate, Failure> {
    let (name, source) = match (given, gguf) {
        (Some(given), _) if WELL_KNOWN.contains(&given) => (given.into(), None),
        (Some(path), _) => {
            let source = std::fs::read_to_string(path).map_err(|error| {
                let what = format!("it is no name known here ({}), and no file: {error}", WELL_KNOWN.join(", "));
                Error::Template { name: path.into(), what }
            })?;
            (Path::new(path).file_name().map_or(path.into(), |name| name.to_string_lossy()), Some(source))
        }
        (None, Some(gguf)) => {
            let template = ChatTemplate::from_gguf(gguf, name)?;
            if tokens == (None, None) {
                return Ok(template);
            }
            // the file's own source, with other tokens
            match gguf.str(template.name())? {
                Some(source) => (template.name().to_string().into(), Some(source.to_string())),
                None => (template.name().to_string().into(), None),
            }
        }
        (None, None) => {
            let expected = "a model or --template".into();
            return Err(Error::Argument { what: "template".into(), expected, got: "neither".into() }.into());
        }
    };
    let tokenizer = gguf.and_then(|gguf| Tokenizer::from_gguf(gguf).ok());
    let text = |id: fn(&Tokenizer) -> Option<u32>| {
        let tokenizer = tokenizer.as_ref()?;
        Some(String::from_utf8_lossy(tokenizer.token_text(id(tokenizer)?)?).into_owned())
    };
    let (bos, eos) = (tokens.0.or_else(|| text(Tokenizer::bos)), tokens.1.or_else(|| text(Tokenizer::eos)));
    Ok(match source {
        Some(source) => ChatTemplate::new(&name, &source, bos.as_deref(), eos.as_deref())?,
        None => ChatTemplate::well_known(&name, bos.as_deref(), eos.as_deref())?,
    })
}

/// This minute, in UTC.
pub fn now() -> DateTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    DateTime::from_unix(since.as_secs() as i64)
}
