//! `render`: the prompt text that a chat template makes of messages, exactly.

use super::{Failure, open};
use clap::Args;
use peregrine::chat::{ChatInput, ChatTemplate, DateTime};
use peregrine::{Error, Gguf};
use std::io::Write;
use std::path::{Path, PathBuf};

#[derive(Args)]
pub struct Render {
    /// A GGUF file whose template is taken
    #[arg(required_unless_present = "template")]
    model: Option<PathBuf>,
    /// A template file, or the name of a well-known one (chatml, llama2, llama3, mistral, gemma, phi3, zephyr)
    #[arg(long, value_name = "FILE|NAME")]
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
        let gguf = self.model.as_deref().map(|path| open::gguf(Some(path))).transpose()?;
        let (bos, eos) = (self.bos.as_deref(), self.eos.as_deref());
        let template = template(gguf.as_ref(), self.template.as_deref(), self.template_name.as_deref(), bos, eos)?;
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
        let mut out = std::io::stdout().lock();
        out.write_all(rendered.as_bytes())?;
        Ok(out.flush()?)
    }
}

/// The template that the flags name: a file, a well-known one, or one of the model's.
pub fn template(
    gguf: Option<&Gguf>,
    given: Option<&str>,
    name: Option<&str>,
    bos: Option<&str>,
    eos: Option<&str>,
) -> Result<ChatTemplate, Failure> {
    let token = |key: &str| -> Option<String> {
        let gguf = gguf?;
        let id = gguf.u32(&format!("tokenizer.ggml.{key}_token_id")).ok()??;
        let tokens = gguf.strings("tokenizer.ggml.tokens").ok()??;
        Some(String::from_utf8_lossy(tokens.get(id as usize)?).into_owned())
    };
    let (own_bos, own_eos) = (token("bos"), token("eos"));
    let (bos, eos) = (bos.or(own_bos.as_deref()), eos.or(own_eos.as_deref()));
    match (given, gguf) {
        (Some(given), _) if peregrine::chat::WELL_KNOWN.contains(&given) => {
            Ok(ChatTemplate::well_known(given, bos, eos)?)
        }
        (Some(given), _) => {
            let source = std::fs::read_to_string(given).map_err(|source| Error::Io { path: given.into(), source })?;
            let name = Path::new(given).file_name().map_or(given.into(), |name| name.to_string_lossy());
            Ok(ChatTemplate::new(&name, &source, bos, eos)?)
        }
        (None, Some(gguf)) => Ok(ChatTemplate::from_gguf(gguf, name)?),
        (None, None) => Err(Error::Argument {
            what: "template".into(),
            expected: "a model or --template".into(),
            got: "neither".into(),
        }
        .into()),
    }
}

/// This minute, in UTC.
pub fn now() -> DateTime {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    DateTime::from_unix(since.as_secs() as i64)
}
