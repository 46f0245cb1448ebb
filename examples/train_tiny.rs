//! Trains a new model from random weights, letter by letter, on verses that are in the public domain (or on a text of yours),
//! and lets it recite: `cargo run --release --example train_tiny -- [TEXT [STEPS]]`. A few minutes on a software GPU.

use peregrine::gguf::{Strings, Writer};
use peregrine::model::Architecture;
use peregrine::train::{Batches, NewModel, Schedule, Sequence, TrainOptions, Trainer};
use peregrine::{Error, Gguf, Gpu, Model, SessionOptions, block_on};

const CONTEXT: u32 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let text = match args.next() {
        Some(path) => std::fs::read_to_string(path)?,
        None => include_str!("verses.txt").to_string(),
    };
    let steps: u64 = args.next().map_or(Ok(300), |steps| steps.parse())?;
    // Every letter that occurs is a token.
    let mut letters: Vec<char> = text.chars().collect();
    letters.sort_unstable();
    letters.dedup();
    let id_of = |letter: char| letters.binary_search(&letter).map(|i| i as u32);
    let ids: Vec<u32> = text.chars().filter_map(|letter| id_of(letter).ok()).collect();

    let gpu = block_on(Gpu::new())?;
    let mut vocabulary = Writer::new();
    let tokens: Strings = letters.iter().map(char::to_string).collect();
    vocabulary.set("tokenizer.ggml.model", "none").set("tokenizer.ggml.tokens", tokens);
    let new = NewModel {
        architecture: Architecture::Llama,
        name: "Verses".into(),
        blocks: 2,
        embedding: 64,
        heads: 4,
        kv_heads: 2,
        head_size: 16,
        feed_forward: 128,
        context: CONTEXT,
        rope_base: 10_000.0,
        rms_eps: 1e-5,
        tied: true,
    };
    let gguf = new.gguf(&Gguf::from_bytes(vocabulary.to_bytes()?)?, 1)?;
    let model = block_on(Model::load_masters(&gpu, &gguf, |_, _| ()))?;

    // Stretches of the text, overlapping by half.
    let step = CONTEXT as usize / 2;
    let stretches: Vec<Sequence> = ids.windows(CONTEXT as usize + 1).step_by(step).map(Sequence::next_tokens).collect();
    let mut batches = Batches::new(stretches, 8, 1)?;
    let schedule = Schedule { rate: 1e-2, warm_up: 20, steps, ..Schedule::default() };
    let options = TrainOptions { context: CONTEXT, tokens: 8 * CONTEXT, schedule, ..TrainOptions::default() };
    let mut trainer = Trainer::full(&model, |_| true, options)?;
    for step in 0..steps {
        let loss = block_on(trainer.step(&[batches.next_batch()]))?;
        if step % 25 == 0 || step + 1 == steps {
            println!("step {step:4}  loss {:.3}", loss.loss);
        }
    }

    // The model was trained in place: a session uses it as it is now.
    let mut session = model.session(&SessionOptions { exact: true, ..SessionOptions::default() })?;
    let begin: Vec<u32> = ids.iter().take(8).copied().collect();
    if begin.is_empty() {
        let (what, expected) = ("text".into(), "one letter or more".into());
        return Err(Error::Argument { what, expected, got: "none".into() }.into());
    }
    block_on(session.append(&begin))?;
    let mut recited: Vec<u32> = begin;
    while session.position() < session.context() {
        let id = block_on(session.greedy())?;
        recited.push(id);
        if session.position() + 1 == session.context() {
            break;
        }
        block_on(session.append(&[id]))?;
    }
    println!("\n{}", recited.iter().map(|&id| letters[id as usize]).collect::<String>());
    Ok(())
}
