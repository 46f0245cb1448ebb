//! `chat`: a conversation on the terminal, or one question and out.

use super::open::{ModelFile, RunArgs};
use super::prompt::SamplingArgs;
use super::render::{now, template, template_help};
use super::{Failure, output};
use clap::Args;
use peregrine::answer::{Ask, End, answer};
use peregrine::chat::{ChatInput, ChatTemplate, Conversation};
use peregrine::tokenizer::Tokenizer;
use peregrine::{Error, Sampling, Session, block_on};
use rustyline::error::ReadlineError;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const HELP: &str = "\
/reset  begin anew; the system message stays
/regen  answer the last question again
/stats  speed, seed and context
/help   this
/quit   leave (also Ctrl-D)
Ctrl-C stops an answer; twice, it leaves.
When the context is full, the oldest question and its answer are forgotten, until what is left takes at most three \
quarters of it. The system message and your last question always stay. An answer that reaches the end of the context \
is cut there.";

#[derive(Args)]
pub struct Chat {
    /// A GGUF file
    model: PathBuf,
    /// Ask this one question, print the answer and leave
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// The system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    #[arg(long, value_name = "FILE|NAME", help = template_help())]
    chat_template: Option<String>,
    /// Which of the model's templates, if it has several
    #[arg(long, value_name = "NAME", conflicts_with = "chat_template")]
    template_name: Option<String>,
    /// The most tokens of an answer
    #[arg(short = 'n', long = "tokens", value_name = "N", default_value_t = 1024)]
    tokens: u32,
    #[command(flatten)]
    sampling: SamplingArgs,
    #[command(flatten)]
    run: RunArgs,
}

/// Everything that a conversation needs.
struct Talk {
    session: Session,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    conversation: Conversation,
    sampling: Sampling,
    stop: Vec<String>,
    tokens: u32,
    interrupted: Arc<AtomicBool>,
    /// Answers so far: each has a seed of its own, or /regen would give the same answer again.
    answers: u64,
    stats: Option<String>,
}

impl Chat {
    pub fn run(self) -> Result<(), Failure> {
        let sampling = self.sampling.sampling()?;
        let file = ModelFile::open_model(Some(&self.model))?;
        let tokenizer = file.tokenizer()?;
        let names = (self.chat_template.as_deref(), self.template_name.as_deref());
        let template = template(Some(&file.gguf), names, (None, None))?;
        let mut talk = Talk {
            session: file.session(&self.run)?,
            tokenizer,
            template,
            conversation: Conversation::new(self.system.as_deref()),
            sampling,
            stop: self.sampling.stop,
            tokens: self.tokens,
            interrupted: Arc::default(),
            answers: 0,
            stats: None,
        };
        let flag = talk.interrupted.clone();
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130); // the second one, and the answer has not ended yet
            }
        })?;
        match self.prompt {
            Some(question) => talk.ask(&question),
            None => talk.converse(),
        }
    }
}

impl Talk {
    /// Reads lines until the end of input.
    fn converse(&mut self) -> Result<(), Failure> {
        let on_terminal = std::io::stdin().is_terminal();
        if on_terminal {
            let model = self.session.model();
            let name = model.config().name.as_deref().unwrap_or("a model without a name");
            let context = self.session.context();
            output::tell(format!("{name}, on {}, with a context of {context} tokens.", model.gpu().card().name));
            output::tell("/help lists the commands. Ctrl-D leaves.\n");
        }
        let mut editor = rustyline::DefaultEditor::new()?;
        let history = history_file();
        if let Some(file) = &history {
            let _ = editor.load_history(file); // none yet
        }
        loop {
            self.interrupted.store(false, Ordering::Relaxed);
            let line = match editor.readline(if on_terminal { "> " } else { "" }) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue, // Ctrl-C at the prompt drops the line
                Err(ReadlineError::Eof) => break,
                Err(ReadlineError::Io(source)) => {
                    return Err(Error::Io { path: "standard input".into(), source }.into());
                }
                Err(error) => return Err(error.into()),
            };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let _ = editor.add_history_entry(line);
            match line {
                "/quit" | "/exit" => break,
                "/help" => output::tell(HELP),
                "/reset" => self.conversation.reset(),
                "/stats" => self.tell_stats(),
                "/regen" if self.conversation.take_back_answer() => self.answer_or_tell()?,
                "/regen" => output::tell("there is no answer yet"),
                _ if line.starts_with('/') => output::tell(format!("unknown command {line}; /help lists them")),
                question => {
                    self.conversation.ask(question);
                    self.answer_or_tell()?;
                }
            }
        }
        if let Some(file) = &history {
            let _ = std::fs::create_dir_all(file.parent().unwrap_or(file)); // history is a convenience
            let _ = editor.save_history(file);
        }
        Ok(())
    }

    fn ask(&mut self, question: &str) -> Result<(), Failure> {
        self.conversation.ask(question);
        self.answer()
    }

    /// An error of the engine ends the answer, not the conversation; the question that caused it is taken back.
    fn answer_or_tell(&mut self) -> Result<(), Failure> {
        match self.answer() {
            Err(failure) if failure.is::<Error>() => {
                output::report(&*failure);
                self.conversation.take_back_question();
                Ok(())
            }
            outcome => outcome, // our output is gone
        }
    }

    /// The tokens of a prompt made of these messages.
    fn tokens_of(&self, messages: &serde_json::Value) -> Result<Vec<u32>, Error> {
        let input = ChatInput { messages, tools: None, add_generation_prompt: true, now: now() };
        self.template.prompt(&self.tokenizer, &input)
    }

    /// The prompt of the conversation, without its oldest turns if the context is full.
    fn prompt(&mut self) -> Result<Vec<u32>, Error> {
        let context = self.session.context();
        let room = (context / 4).min(self.tokens).max(1); // of the context, for the answer
        let mut conversation = self.conversation.clone();
        let dropped = conversation
            .drop_until(|messages| Ok(self.tokens_of(messages)?.len() as u64 + room as u64 <= context as u64))?;
        match dropped {
            Some(0) => {}
            Some(1) => output::tell("[the context is full: the oldest question and its answer are forgotten]"),
            Some(n) => output::tell(format!("[the context is full: the oldest {n} questions are forgotten]")),
            None => {
                let tokens = self.tokens_of(&conversation.messages())?.len() as u32;
                let hint = "The question is too long for it; choose a larger one with --ctx".into();
                return Err(Error::ContextFull { context, position: 0, tokens, hint });
            }
        }
        self.conversation = conversation;
        self.tokens_of(&self.conversation.messages())
    }

    fn answer(&mut self) -> Result<(), Failure> {
        let prompt = self.prompt()?;
        let seed = self.sampling.seed.map(|seed| seed.wrapping_add(self.answers));
        self.answers += 1;
        let ask = Ask {
            prompt: &prompt,
            tokenizer: Some(&self.tokenizer),
            sampling: Sampling { seed, ..self.sampling.clone() },
            max_tokens: Some(self.tokens),
            stop: &self.stop,
            ignore_eos: false,
            interrupted: &|_| self.interrupted.load(Ordering::Relaxed),
            given: &|_| (),
        };
        let mut page = output::Page::default();
        let show = |piece: &str| -> Result<(), Failure> { Ok(page.show(piece)?) };
        let answer = block_on(answer(&mut self.session, ask, show)).inspect_err(|_| page.end_line())?;
        output::show("\n")?;
        match answer.end {
            End::Eos | End::StopString => {}
            End::Interrupted => output::tell("[stopped]"),
            End::Context => output::tell("[the context is full]"),
            End::Length => output::tell("[as long as --tokens allows]"),
        }
        let speed = answer.decode_tps.map_or(String::new(), |tps| format!(", {tps:.1} tokens/s"));
        let first = answer.first.map_or(String::new(), |first| format!(", the first after {first:.2} s"));
        self.stats = Some(format!(
            "{}{speed}{first}, seed {}; {} of {} prompt tokens were new",
            output::counted(answer.ids.len() as u64, "token"),
            answer.seed,
            answer.new_tokens,
            prompt.len(),
        ));
        self.conversation.answer(&answer.text);
        Ok(())
    }

    fn tell_stats(&self) {
        output::tell(format!("last answer: {}", self.stats.as_deref().unwrap_or("none yet")));
        output::tell(format!("context: {} of {} tokens in use", self.session.position(), self.session.context()));
    }
}

/// Where the lines typed before are kept.
fn history_file() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let home = || Some(folder("HOME").or_else(|| folder("USERPROFILE"))?.join(".local/state"));
    Some(folder("XDG_STATE_HOME").or_else(home)?.join("peregrine/history"))
}
