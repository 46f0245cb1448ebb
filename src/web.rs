//! The face that a web page sees: functions for JavaScript over the same engine.

use crate::generate::GenerateOptions;
use crate::gguf::Gguf;
use crate::gpu::Gpu;
use crate::model::{Config, Model};
use crate::sampling::Sampling;
use crate::session::SessionOptions;
use crate::tokenizer::{Encode, Tokenizer};
use wasm_bindgen::prelude::*;

/// The engine's version.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

/// The numbers of a GGUF model, as JSON. Needs no GPU.
#[wasm_bindgen]
pub fn inspect(gguf: Vec<u8>) -> Result<String, JsError> {
    let gguf = Gguf::from_bytes(gguf)?;
    let config = Config::from_gguf(&gguf)?;
    let card = serde_json::json!({
        "architecture": config.architecture.name(),
        "name": config.name,
        "block_count": config.block_count,
        "embedding_length": config.embedding_length,
        "vocab_size": config.vocab_size,
        "context_length": config.context_length,
        "tensors": gguf.tensors().len(),
        "bytes": gguf.tensors().iter().map(|tensor| tensor.size).sum::<u64>(),
    });
    Ok(card.to_string())
}

/// The token ids of a text, by the model's own tokenizer. Needs no GPU.
#[wasm_bindgen]
pub fn tokenize(gguf: Vec<u8>, text: &str) -> Result<Vec<u32>, JsError> {
    let tokenizer = Tokenizer::from_gguf(&Gguf::from_bytes(gguf)?)?;
    Ok(tokenizer.encode(text.as_bytes(), &Encode::default())?)
}

/// The most likely `tokens` ids after `ids`, by a GGUF model on the browser's GPU.
#[wasm_bindgen(js_name = generateIds)]
pub async fn generate_ids(gguf: Vec<u8>, ids: Vec<u32>, tokens: u32) -> Result<Vec<u32>, JsError> {
    let gpu = Gpu::new().await?;
    let model = Model::load(&gpu, &Gguf::from_bytes(gguf)?, |_, _| ()).await?;
    let mut session = model.session(&SessionOptions::default())?;
    session.append(&ids).await?;
    let options = GenerateOptions { sampling: Sampling::greedy(), max_tokens: Some(tokens), end_ids: Vec::new() };
    let mut generation = session.generate(options)?;
    let mut generated = Vec::new();
    while let Some(id) = generation.next_token().await? {
        generated.push(id);
    }
    Ok(generated)
}
