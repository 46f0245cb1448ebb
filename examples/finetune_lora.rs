//! Teaches a model a text by adapters, lets it continue before and after, and keeps the adapter as a GGUF file that llama.cpp
//! and `peregrine generate --lora` read: `cargo run --release --example finetune_lora -- [MODEL.gguf [TEXT.txt [STEPS]]]`.

use peregrine::model::Target;
use peregrine::tokenizer::{Encode, Tokenizer};
use peregrine::train::{Batches, DataOptions, LoraOptions, Schedule, TrainOptions, Trainer, read_data_from};
use peregrine::{Gguf, Gpu, Model, SessionOptions, block_on};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let gguf = match args.next() {
        Some(path) => Gguf::open(path)?,
        None => peregrine::builtin::tales()?,
    };
    let text = match args.next() {
        Some(path) => std::fs::read(path)?,
        None => include_bytes!("verses.txt").to_vec(),
    };
    let steps: u64 = args.next().map_or(Ok(40), |steps| steps.parse())?;
    let gpu = block_on(Gpu::new())?;
    let model = block_on(Model::load(&gpu, &gguf, |_, _| ()))?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let prompt = "The Owl and the Pussy-cat";
    println!("before: {}", continued(&model, &tokenizer, prompt)?);

    let data = DataOptions { context: 128, ..DataOptions::default() };
    let (sequences, report) = read_data_from(Path::new("verses.txt"), &text[..], &data, &tokenizer, None)?;
    println!("{} sequences, {} tokens to learn", report.sequences, report.counted_labels);
    let mut batches = Batches::new(sequences, 2, 1)?;
    let lora = LoraOptions { targets: Target::ALL.to_vec(), ..LoraOptions::default() };
    let schedule = Schedule { rate: 1e-2, warm_up: 4, steps, ..Schedule::default() };
    let options = TrainOptions { context: 128, tokens: 256, schedule, ..TrainOptions::default() };
    // The base is shared: sessions of `model` go on as before while its adapters learn.
    let mut trainer = Trainer::lora(&model, &lora, options)?;
    for step in 0..steps {
        let loss = block_on(trainer.step(&[batches.next_batch()]))?;
        if step % 5 == 0 || step + 1 == steps {
            println!("step {step:3}  loss {:.3}", loss.loss);
        }
    }
    println!("after:  {}", continued(trainer.model(), &tokenizer, prompt)?);
    trainer.export_adapter(Path::new("verses-adapter.gguf"))?;
    println!("verses-adapter.gguf: generate --lora takes it");
    Ok(())
}

/// What the model says after a text, by its most likely tokens.
fn continued(model: &Model, tokenizer: &Tokenizer, prompt: &str) -> peregrine::Result<String> {
    let mut session = model.session(&SessionOptions { context: Some(128), ..SessionOptions::default() })?;
    block_on(session.append(&tokenizer.encode(prompt.as_bytes(), &Encode::default())?))?;
    let mut stream = tokenizer.stream();
    let mut text = prompt.to_string();
    for _ in 0..32 {
        let id = block_on(session.greedy())?;
        text += &stream.push(id);
        block_on(session.append(&[id]))?;
    }
    Ok(text)
}
