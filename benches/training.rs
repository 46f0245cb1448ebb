//! A LoRA step beside the prefill of the same tokens, for growing batches: how much dearer learning is than reading, and whether
//! its time grows with the tokens alone.
//!
//! `cargo bench --bench training -- [MODEL.gguf [ROUNDS]]`: the built-in model and three rounds if not said otherwise.

use peregrine::bench::median;
use peregrine::train::{LoraOptions, Sequence, TrainOptions, Trainer};
use peregrine::{Gguf, Gpu, Model, Session, SessionOptions, block_on};
use std::time::Instant;

/// (sequences, tokens of each)
const BATCHES: [(u32, u32); 5] = [(1, 128), (1, 256), (1, 512), (2, 512), (4, 512)];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1).filter(|arg| arg != "--bench"); // which cargo adds
    let gguf = match args.next() {
        Some(path) => Gguf::open(path)?,
        None => peregrine::builtin::tales()?,
    };
    let rounds: usize = args.next().map_or(Ok(3), |rounds| rounds.parse())?;
    let gpu = block_on(Gpu::new())?;
    let model = block_on(Model::load(&gpu, &gguf, |_, _| ()))?;
    let vocab = model.config().vocab_size;
    let batches: Vec<_> = BATCHES.iter().filter(|(_, length)| *length <= model.config().context_length).collect();
    let context = batches.iter().map(|(_, length)| *length).max().ok_or("the model's context is below 128 tokens")?;
    let tokens = batches.iter().map(|(count, length)| count * length).max().unwrap_or(context);
    let options = TrainOptions { context, tokens, ..TrainOptions::default() };
    let mut trainer = Trainer::lora(&model, &LoraOptions::default(), options)?;
    let mut session = model.session(&SessionOptions { context: Some(context), ..SessionOptions::default() })?;
    println!("{}, LoRA of rank 16 on q and v, medians of {rounds} rounds", gpu.card().name);
    println!("{:>10} {:>12} {:>12} {:>8} {:>14}", "batch", "prefill ms", "step ms", "ratio", "step ms/token");
    for &(count, length) in batches {
        let ids = |row: u32| (0..=length).map(|i| (i * 7919 + row * 104_729 + 1) % vocab).collect::<Vec<u32>>();
        let batch: Vec<Sequence> = (0..count).map(|row| Sequence::next_tokens(&ids(row))).collect();
        read(&mut session, &batch)?; // the first time, shaders are compiled and memory is touched
        block_on(trainer.loss(&batch))?;
        if count * length <= 256 {
            block_on(trainer.step(std::slice::from_ref(&batch)))?;
        }
        let (mut reading, mut learning) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            let start = Instant::now();
            read(&mut session, &batch)?;
            reading.push(start.elapsed().as_secs_f64());
            let start = Instant::now();
            block_on(trainer.step(std::slice::from_ref(&batch)))?;
            learning.push(start.elapsed().as_secs_f64());
        }
        let (reading, learning) = (median(&reading) * 1e3, median(&learning) * 1e3);
        let (ratio, each) = (learning / reading, learning / (count * length) as f64);
        println!("{:>10} {reading:>12.1} {learning:>12.1} {ratio:>8.2} {each:>14.3}", format!("{count} x {length}"));
    }
    Ok(())
}

/// Prefill of each sequence, one after the other.
fn read(session: &mut Session, batch: &[Sequence]) -> peregrine::Result<()> {
    for sequence in batch {
        session.truncate(0);
        block_on(session.append(&sequence.ids))?;
        block_on(session.logits())?;
    }
    Ok(())
}
