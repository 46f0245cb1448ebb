//! `inspect`: the architecture card of a model file. Needs no GPU; shows what it can of files that are no model.

use super::open::ModelFile;
use super::{Failure, output};
use clap::Args;
use peregrine::chat::ChatTemplate;
use peregrine::kernels::FEW_TOKENS;
use peregrine::model::rope::RopeScaling;
use peregrine::model::tensors::Tensors;
use peregrine::model::{Config, Pairing};
use peregrine::session::DEFAULT_CONTEXT;
use peregrine::tokenizer::Tokenizer;
use peregrine::{Gguf, KvFormat};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Tokens of a prefill pass for which the activations are reckoned: what a GPU takes at once.
const PASS: u32 = 512;

#[derive(Args)]
pub struct Inspect {
    /// A GGUF file; without it, the model that is built in
    model: Option<PathBuf>,
    /// The context to reckon memory for; 0 is the trained length [default: the trained length, at most 4096]
    #[arg(long, value_name = "N")]
    ctx: Option<u32>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl Inspect {
    pub fn run(self) -> Result<(), Failure> {
        log::set_max_level(log::LevelFilter::Error); // the card has the warnings
        let file = ModelFile::open(self.model.as_deref())?;
        let card = card(&file.gguf, self.ctx);
        match self.json {
            true => output::json(&card)?,
            false => print(&card)?,
        }
        Ok(())
    }
}

/// All that the file tells, as far as it can be read; what cannot is told in `warnings`.
fn card(gguf: &Gguf, context: Option<u32>) -> Value {
    let (mut card, mut warnings) = (Map::new(), Vec::new());
    let bytes: u64 = gguf.tensors().iter().map(|tensor| tensor.size).sum();
    let weights: u64 = gguf.tensors().iter().map(|tensor| tensor.count()).sum();
    let key = |key: &str| gguf.str(key).ok().flatten();
    card.insert(
        "file".into(),
        json!({
            "name": key("general.name"),
            "architecture": key("general.architecture"),
            "license": key("general.license"),
            "gguf_version": gguf.version(),
            "alignment": gguf.alignment(),
        }),
    );
    match Config::from_gguf(gguf) {
        Ok(config) => {
            card.insert("model".into(), model(gguf, &config));
            card.insert("memory".into(), memory(bytes, &config, context));
            match Tensors::find(gguf, &config) {
                Ok(tensors) => warnings.extend(tensors.warnings),
                Err(error) => warnings.push(format!("cannot run: {error}")),
            }
        }
        Err(error) => warnings.push(format!("cannot run: {error}")),
    }
    let tensors = gguf.tensors().len();
    card.insert("tensors".into(), json!({ "count": tensors, "parameters": weights, "bytes": bytes }));
    card.insert("formats".into(), formats(gguf));
    match Tokenizer::from_gguf(gguf) {
        Ok(tokenizer) => {
            card.insert("tokenizer".into(), tokenizer_card(gguf, &tokenizer));
            warnings.extend_from_slice(tokenizer.warnings());
        }
        Err(error) => warnings.push(format!("no text: {error}")),
    }
    card.insert("chat_templates".into(), json!(ChatTemplate::names(gguf)));
    for name in ChatTemplate::names(gguf) {
        if let Err(error) = ChatTemplate::from_gguf(gguf, Some(&name)) {
            warnings.push(error.to_string());
        }
    }
    card.insert("warnings".into(), json!(warnings));
    Value::Object(card)
}

fn model(gguf: &Gguf, config: &Config) -> Value {
    // one number where all blocks agree, else one for each
    let per_block = |list: &[u32]| match list.iter().all(|v| *v == list[0]) {
        true => json!(list[0]),
        false => json!(list),
    };
    let rope = &config.rope;
    let scaling = match rope.scaling {
        _ if gguf.tensor("rope_freqs.weight").is_some() => "by a tensor of factors (rope_freqs)".into(),
        RopeScaling::None => "none".into(),
        RopeScaling::Linear { factor } => format!("linear, {factor} times"),
        RopeScaling::Yarn { factor, original_context, .. } => format!("YaRN, {factor} times {original_context}"),
    };
    json!({
        "blocks": config.block_count,
        "embedding_length": config.embedding_length,
        "heads": per_block(&config.heads),
        "kv_heads": per_block(&config.kv_heads),
        "head_size": config.head_size,
        "feed_forward": per_block(&config.feed_forward),
        "vocabulary": config.vocab_size,
        "tied_output": gguf.tensor("output.weight").is_none(),
        "trained_context": config.context_length,
        "rms_eps": config.rms_eps,
        "rope": {
            "base": rope.base,
            "channels": rope.dims,
            "pairs": match rope.pairing { Pairing::Neighbours => "neighbours", Pairing::Halves => "halves" },
            "scaling": scaling,
        },
    })
}

fn memory(weights: u64, config: &Config, context: Option<u32>) -> Value {
    let context = match context {
        None => config.context_length.min(DEFAULT_CONTEXT),
        Some(0) => config.context_length,
        Some(context) => context,
    };
    let blocks = 0..config.block_count as usize;
    let kv_width: u64 = blocks.clone().map(|b| config.kv_length(b) as u64).sum();
    let kv = |format: KvFormat| 2 * context as u64 * format.bytes(kv_width);
    // As model/state.rs allots them: blocks of equal widths share theirs; one set for prefill, one for a single token.
    let widths: BTreeSet<(u32, u32, u32)> =
        blocks.map(|b| (config.q_length(b), config.kv_length(b), config.feed_forward[b])).collect();
    // src/model/state.rs, for a pass of many tokens, one, and few; small buffers are left out
    let (c, vocab) = (config.embedding_length as u64, config.vocab_size as u64);
    let per_token: u64 = widths.iter().map(|&(q, kv, f)| 3 * q as u64 + 2 * kv as u64 + f as u64).sum();
    let once: u64 = widths.iter().map(|&(.., f)| 2 * f as u64).sum();
    let pass = |tokens: u32| 4 * (tokens as u64 * (1 + 2 * c + per_token) + once + c);
    let passes = [1, FEW_TOKENS[0], FEW_TOKENS[1], PASS];
    let activations = passes.map(|tokens| pass(tokens.min(context))).iter().sum::<u64>() + 2 * 4 * vocab;
    json!({
        "context": context,
        "weights_bytes": weights,
        "kv_f16_bytes": kv(KvFormat::F16),
        "kv_f32_bytes": kv(KvFormat::F32),
        "activations_bytes": activations,
        "total_f16_bytes": weights + kv(KvFormat::F16) + activations,
        "total_f32_bytes": weights + kv(KvFormat::F32) + activations,
    })
}

/// By bytes, the largest first.
fn formats(gguf: &Gguf) -> Value {
    let mut formats: Vec<(&str, u64, u64)> = Vec::new();
    for tensor in gguf.tensors() {
        match formats.iter_mut().find(|(name, ..)| *name == tensor.kind.name()) {
            Some((_, count, bytes)) => (*count, *bytes) = (*count + 1, *bytes + tensor.size),
            None => formats.push((tensor.kind.name(), 1, tensor.size)),
        }
    }
    formats.sort_by_key(|&(_, _, bytes)| std::cmp::Reverse(bytes));
    let entry = |(name, count, bytes): (&str, u64, u64)| (name.into(), json!({ "tensors": count, "bytes": bytes }));
    Value::Object(formats.into_iter().map(entry).collect())
}

fn tokenizer_card(gguf: &Gguf, tokenizer: &Tokenizer) -> Value {
    let text = |id: u32| tokenizer.token_text(id).map(|text| String::from_utf8_lossy(text).into_owned());
    let token = |id: Option<u32>| id.map(|id| json!({ "id": id, "text": text(id) }));
    json!({
        "model": tokenizer.kind(),
        "pre": gguf.str("tokenizer.ggml.pre").ok().flatten(),
        "tokens": tokenizer.vocab_size(),
        "bos": token(tokenizer.bos()),
        "eos": token(tokenizer.eos()),
        "adds_bos": tokenizer.adds_bos(),
        "ends": tokenizer.end_ids().iter().map(|&id| text(id)).collect::<Vec<_>>(),
    })
}

/// The same card, for people.
fn print(card: &Value) -> std::io::Result<()> {
    let head = |text: &str| output::line(console::style(text).bold(), 0);
    let line = |name: &str, text: String| output::line(format!("  {name:<16}{text}"), 18);
    let size = |value: &Value| output::bytes(value.as_u64().unwrap_or(0));
    let (file, model) = (&card["file"], &card["model"]);
    head(file["name"].as_str().unwrap_or("no name"))?;
    line("architecture", plain(&file["architecture"]))?;
    line("license", plain(&file["license"]))?;
    line("parameters", count(card["tensors"]["parameters"].as_u64().unwrap_or(0)))?;
    if !model.is_null() {
        line("blocks", plain(&model["blocks"]))?;
        line("embedding", plain(&model["embedding_length"]))?;
        let (heads, kv_heads) = (plain(&model["heads"]), plain(&model["kv_heads"]));
        line("attention", format!("{heads} heads of {}, {kv_heads} kv heads", model["head_size"]))?;
        line("feed-forward", plain(&model["feed_forward"]))?;
        let head = if model["tied_output"] == true { "the embedding is the output head" } else { "own output head" };
        line("vocabulary", format!("{}, {head}", model["vocabulary"]))?;
        line("trained context", plain(&model["trained_context"]))?;
        let rope = &model["rope"];
        let channels = format!("{} of {} channels", rope["channels"], model["head_size"]);
        let base = rope["base"].as_f64().unwrap_or(0.0) as f32; // without ".0"
        let (pairs, scaling) = (plain(&rope["pairs"]), plain(&rope["scaling"]));
        line("RoPE", format!("base {base}, {channels}, pairs are {pairs}, scaling {scaling}"))?;
        line("RMSNorm", format!("epsilon {:e}", model["rms_eps"].as_f64().unwrap_or(0.0) as f32))?;
    }
    if let Some(formats) = card["formats"].as_object().filter(|formats| !formats.is_empty()) {
        head("Weights")?;
        for (name, entry) in formats {
            line(name, format!("{:>5} tensors {:>10}", plain(&entry["tensors"]), size(&entry["bytes"])))?;
        }
        let (bytes, weights) = (&card["tensors"]["bytes"], &card["tensors"]["parameters"]);
        let bits = 8.0 * bytes.as_f64().unwrap_or(0.0) / weights.as_f64().unwrap_or(1.0).max(1.0);
        let tensors = plain(&card["tensors"]["count"]);
        line("together", format!("{tensors:>5} tensors {:>10}, {bits:.2} bits a weight", size(bytes)))?;
    }
    head("Text")?;
    if let Some(tokenizer) = card.get("tokenizer") {
        let kind = match tokenizer["model"].as_str() {
            Some("gpt2") => "byte-level BPE",
            Some("llama") => "SentencePiece BPE",
            _ => "no vocabulary: token ids only",
        };
        let pre = tokenizer["pre"].as_str().map_or(String::new(), |pre| format!(", pre-tokenizer {pre}"));
        line("tokenizer", format!("{kind}{pre}"))?;
        let token = |token: &Value| match token.is_null() {
            true => "none".into(),
            false => format!("{} {}", token["id"], plain(&token["text"])),
        };
        if tokenizer["tokens"] != 0 {
            let added = if tokenizer["adds_bos"] == true { "added to texts" } else { "not added to texts" };
            line("BOS", format!("{}, {added}", token(&tokenizer["bos"])))?;
            line("EOS", token(&tokenizer["eos"]))?;
            line("answers end at", list(&tokenizer["ends"], " "))?;
        }
    }
    line("chat templates", list(&card["chat_templates"], ", "))?;
    let memory = &card["memory"];
    if !memory.is_null() && memory["weights_bytes"] != 0 {
        head(&format!("Memory at a context of {}", memory["context"]))?;
        line("weights", format!("{:>10}", size(&memory["weights_bytes"])))?;
        let (f16, f32) = (size(&memory["kv_f16_bytes"]), size(&memory["kv_f32_bytes"]));
        line("KV cache", format!("{f16:>10} (f16), {f32} (f32)"))?;
        let pass = output::counted(memory["context"].as_u64().unwrap_or(0).min(PASS.into()), "token");
        line("activations", format!("{:>10} (passes of {pass})", size(&memory["activations_bytes"])))?;
        let (f16, f32) = (size(&memory["total_f16_bytes"]), size(&memory["total_f32_bytes"]));
        line("together", format!("{f16:>10} (f16), {f32} (f32)"))?;
    }
    for warning in card["warnings"].as_array().into_iter().flatten() {
        output::line(format!("{} {}", console::style("warning:").yellow().bold(), plain(warning)), 2)?;
    }
    Ok(())
}

fn plain(value: &Value) -> String {
    match value {
        Value::Null => "-".into(),
        Value::String(text) => text.clone(),
        Value::Array(_) => list(value, " "),
        other => other.to_string(),
    }
}

fn list(values: &Value, between: &str) -> String {
    match values.as_array().filter(|values| !values.is_empty()) {
        Some(values) => values.iter().map(plain).collect::<Vec<_>>().join(between),
        None => "none".into(),
    }
}

/// "2.8 million".
fn count(n: u64) -> String {
    match n {
        0..1_000_000 => n.to_string(),
        1_000_000..1_000_000_000 => format!("{:.1} million", n as f64 / 1e6),
        _ => format!("{:.2} billion", n as f64 / 1e9),
    }
}
