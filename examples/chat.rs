//! A chat with any model that has a chat template: `cargo run --release --example chat -- MODEL.gguf`.
//! The KV cache is reused from turn to turn: only new tokens are run.

use peregrine::chat::{ChatInput, ChatTemplate, Conversation, DateTime};
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::{GenerateOptions, Gguf, Gpu, Model, SessionOptions, block_on};
use std::io::{BufRead, Write};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("usage: chat MODEL.gguf")?;
    let gguf = Gguf::open(path)?;
    let gpu = block_on(Gpu::new())?;
    let model = block_on(Model::load(&gpu, &gguf, |_, _| {}))?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let template = ChatTemplate::from_gguf(&gguf, None)?;
    let mut session = model.session(&SessionOptions::default())?;
    let mut conversation = Conversation::new(Some("You are a helpful assistant."));

    for question in std::io::stdin().lock().lines() {
        conversation.ask(&question?);
        let seconds = std::time::UNIX_EPOCH.elapsed()?.as_secs() as i64;
        let messages = conversation.messages();
        let now = DateTime::from_unix(seconds);
        let input = ChatInput { messages: &messages, tools: None, add_generation_prompt: true, now };
        let prompt = template.render(&input)?;
        let add_special = !template.begins_with_bos(&prompt, &[]);
        let ids = tokenizer.encode(prompt.as_bytes(), &Encode { add_special, ..Encode::default() })?;

        let new = session.reuse(&ids);
        block_on(session.append(new))?;
        let end_ids = tokenizer.end_ids().to_vec();
        let mut stream = tokenizer.stream();
        let mut answer = String::new();
        for id in session.generate(GenerateOptions { max_tokens: Some(400), end_ids, ..Default::default() })? {
            let piece = stream.push(id?);
            print!("{piece}");
            std::io::stdout().flush()?;
            answer += &piece;
        }
        println!();
        conversation.answer(&answer);
    }
    Ok(())
}
