//! `chat`: a conversation on the terminal, or one question and out.

use super::open::{self, RunArgs};
use super::prompt::SamplingArgs;
use super::render::{now, template};
use super::{Failure, output};
use clap::Args;
use peregrine::chat::{ChatInput, ChatTemplate, Conversation};
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::{Error, GenerateOptions, Session, Stop, block_on};
use rustyline::error::ReadlineError;
use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

const HELP: &str = "/reset  begin anew          /regen  answer the last question again
/stats  speed and context   /help   this            /quit   leave (also Ctrl-D)
Ctrl-C stops an answer. When the context is full, the oldest question and its answer are forgotten, until the rest fits;
the system message and your last question always stay.";

#[derive(Args)]
pub struct Chat {
    /// A GGUF file
    model: PathBuf,
    /// The system message
    #[arg(long, value_name = "TEXT")]
    system: Option<String>,
    /// Ask this one question, print the answer and leave
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// A template file, or the name of a well-known one (chatml, llama2, llama3, mistral, gemma, phi3, zephyr)
    #[arg(long, value_name = "FILE|NAME")]
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
    sampling: SamplingArgs,
    tokens: u32,
    interrupted: Arc<AtomicBool>,
    stats: Option<String>,
}

impl Chat {
    pub fn run(self) -> Result<(), Failure> {
        let gguf = open::runnable(Some(&self.model))?;
        let tokenizer = open::tokenizer(&gguf)?;
        let template = template(Some(&gguf), self.chat_template.as_deref(), self.template_name.as_deref(), None, None)?;
        let session = self.run.session(&gguf)?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let flag = interrupted.clone();
        ctrlc::set_handler(move || {
            if flag.swap(true, Ordering::Relaxed) {
                std::process::exit(130); // a second Ctrl-C while nothing answers to the first
            }
        })?;
        let conversation = Conversation::new(self.system.as_deref());
        let (sampling, tokens) = (self.sampling, self.tokens);
        let mut talk = Talk { session, tokenizer, template, conversation, sampling, tokens, interrupted, stats: None };
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
            eprintln!("{HELP}\n");
        }
        let mut editor = rustyline::DefaultEditor::new()?;
        let history = history_file();
        if let Some(file) = &history {
            let _ = editor.load_history(file); // none yet
        }
        loop {
            let line = match editor.readline(if on_terminal { "> " } else { "" }) {
                Ok(line) => line,
                Err(ReadlineError::Interrupted) => continue, // Ctrl-C at the prompt clears the line
                Err(ReadlineError::Eof) => break,
                Err(error) => return Err(error.into()),
            };
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            let _ = editor.add_history_entry(line);
            match line {
                "/quit" | "/exit" => break,
                "/help" => eprintln!("{HELP}"),
                "/reset" => self.conversation.reset(),
                "/stats" => self.tell_stats(),
                "/regen" if self.conversation.take_back_answer() => self.answer_or_tell(),
                "/regen" => eprintln!("there is no answer yet"),
                _ if line.starts_with('/') => eprintln!("unknown command {line}; /help lists them"),
                question => {
                    self.conversation.ask(question);
                    self.answer_or_tell();
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

    /// An error ends the answer, not the conversation; the question that caused it is taken back.
    fn answer_or_tell(&mut self) {
        if let Err(failure) = self.answer() {
            output::report(&*failure);
            self.conversation.take_back_question();
        }
    }

    /// The tokens of a prompt made of these messages. Control tokens that a user typed stay plain text.
    fn tokens_of(&self, messages: &serde_json::Value) -> Result<Vec<u32>, Error> {
        let controls = self.tokenizer.control_texts();
        let controls: Vec<&str> = controls.iter().map(String::as_str).collect();
        let input = ChatInput { messages, tools: None, add_generation_prompt: true, now: now() };
        let (text, literal) = self.template.render_guarded(&input, &controls)?;
        let add_special = !self.template.begins_with_bos(&text, &literal);
        self.tokenizer.encode(text.as_bytes(), &Encode { add_special, parse_special: true, literal: &literal })
    }

    fn answer(&mut self) -> Result<(), Failure> {
        let context = self.session.context();
        let room = (context / 4).clamp(1, self.tokens); // of the context, for the answer
        let mut conversation = std::mem::take(&mut self.conversation);
        let dropped = conversation
            .drop_until(|messages| Ok(self.tokens_of(messages)?.len() as u64 + room as u64 <= context as u64));
        self.conversation = conversation;
        match dropped? {
            Some(0) => {}
            Some(turns) => {
                eprintln!("[the context is full: the oldest {turns} questions and their answers are forgotten]")
            }
            None => {
                let tokens = self.tokens_of(&self.conversation.messages())?.len() as u32;
                let hint = "The question is too long for it; choose a larger one with --ctx".into();
                return Err(Error::ContextFull { context, position: 0, tokens, hint }.into());
            }
        }
        let ids = self.tokens_of(&self.conversation.messages())?;
        self.interrupted.store(false, Ordering::Relaxed);
        let start = Instant::now();
        let new = self.session.reuse(&ids).to_vec();
        block_on(self.session.append(&new))?;
        let options = GenerateOptions {
            sampling: self.sampling.sampling(Vec::new()),
            max_tokens: Some(self.tokens),
            end_ids: self.tokenizer.end_ids().to_vec(),
        };
        let mut generation = self.session.generate(options)?;
        let mut stream = self.tokenizer.stream();
        let (mut text, mut count, mut first) = (String::new(), 0u32, None);
        while !self.interrupted.load(Ordering::Relaxed) {
            let Some(id) = block_on(generation.next_token())? else { break };
            first.get_or_insert_with(|| start.elapsed().as_secs_f64());
            count += 1;
            let piece = stream.push(id);
            print_now(&piece)?;
            text += &piece;
        }
        let rest = stream.finish();
        text += &rest;
        print_now(&(rest + "\n"))?;
        let why = match generation.stop() {
            None => " (stopped)",
            Some(Stop::Context) => " (the context is full)",
            Some(Stop::Length) => " (as long as --tokens allows)",
            Some(Stop::End(_)) => "",
        };
        if !why.is_empty() {
            eprintln!("[{}]", &why[2..why.len() - 1]);
        }
        let (total, first) = (start.elapsed().as_secs_f64(), first.unwrap_or_default());
        let speed = if count > 1 { (count - 1) as f64 / (total - first).max(1e-9) } else { 0.0 };
        self.stats = Some(format!(
            "{count} tokens, {speed:.1} tokens/s; {} of {} prompt tokens were new, first text after {first:.2} s",
            new.len(),
            ids.len()
        ));
        self.conversation.answer(&text);
        Ok(())
    }

    fn tell_stats(&self) {
        eprintln!("last answer: {}", self.stats.as_deref().unwrap_or("none yet"));
        eprintln!("context: {} of {} tokens in use", self.session.position(), self.session.context());
    }
}

fn print_now(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Where the lines typed before are kept.
fn history_file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from);
    let home = || {
        Some(PathBuf::from(std::env::var_os("HOME").or_else(|| std::env::var_os("USERPROFILE"))?).join(".local/state"))
    };
    Some(state.or_else(home)?.join("peregrine/history"))
}
