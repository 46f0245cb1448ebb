//! Continues a text with any GGUF model: `cargo run --release --example generate -- MODEL.gguf "Once upon a time"`.
//! Without a model, the built-in one tells a story.

use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::{GenerateOptions, Gguf, Gpu, Model, Sampling, SessionOptions, block_on, builtin};
use std::io::Write;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let gguf = args.next().map_or_else(builtin::tales, Gguf::open)?;
    let prompt = args.next().unwrap_or_else(|| "Once upon a time".into());

    let gpu = block_on(Gpu::new())?;
    let model = block_on(Model::load(&gpu, &gguf, |_done, _total| {}))?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let mut session = model.session(&SessionOptions::default())?;

    let ids = tokenizer.encode(prompt.as_bytes(), &Encode::default())?;
    block_on(session.append(&ids))?;
    let sampling = Sampling { temperature: 0.7, ..Sampling::default() };
    let end_ids = tokenizer.end_ids().to_vec();

    print!("{prompt}");
    let mut text = tokenizer.stream();
    for id in session.generate(GenerateOptions { sampling, max_tokens: Some(100), end_ids })? {
        print!("{}", text.push(id?));
        std::io::stdout().flush()?;
    }
    println!("{}", text.finish());
    Ok(())
}
