//! `inspect`: the architecture card of a model file. Needs no GPU; shows what it can of files that are no model.

use super::{Failure, open, output};
use clap::Args;
use peregrine::chat::ChatTemplate;
use peregrine::model::tensors::Tensors;
use peregrine::session::DEFAULT_CONTEXT;
use peregrine::tokenizer::Tokenizer;
use peregrine::{Config, Gguf, KvFormat};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

#[derive(Args)]
pub struct Inspect {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// The context to reckon memory for [default: the trained length, at most 4096]
    #[arg(long, value_name = "N")]
    ctx: Option<u32>,
    /// Print one object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        let gguf = open::gguf(self.model.as_deref())?;
        let mut warnings = Vec::new();
        let mut card = serde_json::Map::new();
        card.insert(
            "file".into(),
            json!({ "version": gguf.version(), "alignment": gguf.alignment(), "tensors": gguf.tensors().len() }),
        );
        match Config::from_gguf(&gguf) {
            Ok(config) => {
                card.insert("model".into(), model(&config));
                card.insert("memory".into(), memory(&gguf, &config, self.ctx));
                match Tensors::find(&gguf, &config) {
                    Ok(tensors) => warnings.extend(tensors.warnings),
                    Err(error) => warnings.push(format!("cannot run: {error}")),
                }
            }
            Err(error) => warnings.push(format!("cannot run: {error}")),
        }
        card.insert("formats".into(), formats(&gguf));
        match Tokenizer::from_gguf(&gguf) {
            Ok(tokenizer) => {
                card.insert("tokenizer".into(), tokenizer_card(&gguf, &tokenizer));
                warnings.extend_from_slice(tokenizer.warnings());
            }
            Err(error) => warnings.push(format!("no text: {error}")),
        }
        card.insert("chat_templates".into(), json!(ChatTemplate::names(&gguf)));
        card.insert("warnings".into(), json!(warnings));
        let card = Value::Object(card);
        if self.json {
            return Ok(output::json(&card)?);
        }
        print_card(&card);
        Ok(())
    }
}

fn model(config: &Config) -> Value {
    // one number where all blocks agree, else one for each
    let per_block = |list: &[u32]| match list.iter().all(|v| *v == list[0]) {
        true => json!(list[0]),
        false => json!(list),
    };
    json!({
        "name": config.name,
        "architecture": config.architecture.name(),
        "blocks": config.block_count,
        "embedding_length": config.embedding_length,
        "heads": per_block(&config.heads),
        "kv_heads": per_block(&config.kv_heads),
        "head_size": config.head_size,
        "feed_forward": per_block(&config.feed_forward),
        "vocabulary": config.vocab_size,
        "trained_context": config.context_length,
        "rms_eps": config.rms_eps,
        "rope": format!("{:?}, base {}, {} of {} channels, scaling {:?}", config.rope.pairing, config.rope.base, config.rope.dims, config.head_size, config.rope.scaling),
    })
}

fn memory(gguf: &Gguf, config: &Config, context: Option<u32>) -> Value {
    let context = match context {
        None => config.context_length.min(DEFAULT_CONTEXT),
        Some(0) => config.context_length,
        Some(context) => context,
    };
    let weights: u64 = gguf.tensors().iter().map(|t| t.size).sum();
    let kv = |format: KvFormat| -> u64 {
        let width: u64 = (0..config.block_count as usize).map(|b| config.kv_length(b) as u64).sum();
        2 * width * context as u64 * format.bytes() as u64
    };
    json!({
        "context": context,
        "weights_bytes": weights,
        "kv_f16_bytes": kv(KvFormat::F16),
        "kv_f32_bytes": kv(KvFormat::F32),
        "total_f16_bytes": weights + kv(KvFormat::F16),
    })
}

fn formats(gguf: &Gguf) -> Value {
    let mut by_type: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for tensor in gguf.tensors() {
        let entry = by_type.entry(tensor.kind.name()).or_default();
        entry.0 += 1;
        entry.1 += tensor.size;
    }
    by_type
        .iter()
        .map(|(name, (tensors, bytes))| (name.to_string(), json!({ "tensors": tensors, "bytes": bytes })))
        .collect()
}

fn tokenizer_card(gguf: &Gguf, tokenizer: &Tokenizer) -> Value {
    let token = |id: Option<u32>| id.map(|id| json!({ "id": id, "text": text(tokenizer, id) }));
    json!({
        "model": tokenizer.kind(),
        "pre": gguf.str("tokenizer.ggml.pre").ok().flatten(),
        "tokens": tokenizer.vocab_size(),
        "bos": token(tokenizer.bos()),
        "eos": token(tokenizer.eos()),
        "adds_bos": tokenizer.adds_bos(),
        "ends": tokenizer.end_ids().iter().map(|&id| text(tokenizer, id)).collect::<Vec<_>>(),
    })
}

fn text(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(&tokenizer.piece(id, true)).into_owned()
}

/// The same object, for people.
fn print_card(card: &Value) {
    let line = |name: &str, text: String| println!("{name:<18}{text}");
    let plain = |value: &Value| match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let size = |value: &Value| output::bytes(value.as_u64().unwrap_or(0));
    if let Some(model) = card.get("model") {
        line("model", format!("{} ({})", plain(&model["name"]), plain(&model["architecture"])));
        line("blocks", plain(&model["blocks"]));
        line("embedding", plain(&model["embedding_length"]));
        let heads = format!(
            "{} of {}, over {} kv heads",
            plain(&model["heads"]),
            model["head_size"],
            plain(&model["kv_heads"])
        );
        line("heads", heads);
        line("feed-forward", plain(&model["feed_forward"]));
        line("vocabulary", plain(&model["vocabulary"]));
        line("trained context", plain(&model["trained_context"]));
        line("RoPE", plain(&model["rope"]));
    }
    for (i, (name, entry)) in card["formats"].as_object().into_iter().flatten().enumerate() {
        let head = if i == 0 { "formats" } else { "" };
        line(head, format!("{name:<6} {:>5} tensors {:>10}", plain(&entry["tensors"]), size(&entry["bytes"])));
    }
    if let Some(tokenizer) = card.get("tokenizer") {
        let pre = tokenizer["pre"].as_str().map(|pre| format!(", pre-tokenizer {pre}")).unwrap_or_default();
        line("tokenizer", format!("{}{pre}, {} tokens", plain(&tokenizer["model"]), tokenizer["tokens"]));
        let special =
            |token: &Value| token.get("text").map_or("none".into(), |text| format!("{} {}", token["id"], plain(text)));
        let added = if tokenizer["adds_bos"] == true { "added" } else { "not added" };
        line("BOS, EOS", format!("{} ({added}), {}", special(&tokenizer["bos"]), special(&tokenizer["eos"])));
        let ends: Vec<_> = tokenizer["ends"].as_array().into_iter().flatten().map(plain).collect();
        line("answers end at", ends.join(" "));
    }
    let templates: Vec<_> = card["chat_templates"].as_array().into_iter().flatten().map(plain).collect();
    line("chat templates", if templates.is_empty() { "none".into() } else { templates.join(", ") });
    if let Some(memory) = card.get("memory") {
        line("memory", format!("weights {}", size(&memory["weights_bytes"])));
        let (f16, f32) = (size(&memory["kv_f16_bytes"]), size(&memory["kv_f32_bytes"]));
        line("", format!("KV cache at a context of {}: {f16} (f16), {f32} (f32)", memory["context"]));
    }
    for warning in card["warnings"].as_array().into_iter().flatten() {
        line("warning", plain(warning));
    }
}
