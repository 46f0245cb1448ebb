//! A model in the browser: opened, loaded onto the GPU, asked.

use super::error::{bad, thrown};
use super::file::{File, Part, Thrown};
use crate::answer::{Answer, Ask, End, answer};
use crate::chat::{ChatInput, ChatTemplate, DateTime};
use crate::error::Error;
use crate::formats::Format;
use crate::gguf::{Gguf, Slices};
use crate::gpu::Gpu;
use crate::model::{Config, Model};
use crate::sampling::Sampling;
use crate::session::{Session, SessionOptions};
use crate::tokenizer::{Encode, Tokenizer};
use js_sys::Function;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;
use wasm_bindgen::prelude::*;

/// A model: first its files' headers, then its weights on the GPU.
#[wasm_bindgen]
pub struct Engine {
    gguf: Gguf,
    config: Config,
    pub(super) tokenizer: Tokenizer,
    pub(super) template: Option<ChatTemplate>,
    files: Thrown,
    pub(super) loaded: Option<Loaded>,
    /// Ids of the last answer, also of one that an error ended.
    given: Vec<u32>,
}

/// What lives on the GPU.
pub(super) struct Loaded {
    pub gpu: Gpu,
    /// With adapters where some are in use.
    pub model: Model,
    pub session: Session,
    /// Bytes of weights and session.
    pub bytes: u64,
}

/// What an answer may be told; what is absent is as in [`Sampling::default`].
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnswerOptions {
    max_tokens: Option<u32>,
    temperature: Option<f32>,
    top_k: Option<u32>,
    top_p: Option<f32>,
    min_p: Option<f32>,
    repeat_penalty: Option<f32>,
    frequency_penalty: Option<f32>,
    presence_penalty: Option<f32>,
    seed: Option<u64>,
    #[serde(default)]
    stop: Vec<String>,
}

impl AnswerOptions {
    fn sampling(&self) -> Sampling {
        let default = Sampling::default();
        Sampling {
            temperature: self.temperature.unwrap_or(default.temperature),
            top_k: self.top_k.unwrap_or(default.top_k),
            top_p: self.top_p.unwrap_or(default.top_p),
            min_p: self.min_p.unwrap_or(default.min_p),
            repeat_penalty: self.repeat_penalty.unwrap_or(default.repeat_penalty),
            frequency_penalty: self.frequency_penalty.unwrap_or(default.frequency_penalty),
            presence_penalty: self.presence_penalty.unwrap_or(default.presence_penalty),
            seed: self.seed,
            ..default
        }
    }
}

/// The share of the context, at least, that a conversation leaves to the answer: 1 / this.
const ANSWER_SHARE: u32 = 4;

#[wasm_bindgen]
impl Engine {
    /// Reads the headers of a model's files: no GPU is needed.
    pub async fn open(parts: Vec<Part>) -> Result<Engine, JsValue> {
        let files = Thrown::default();
        let file = |part| Arc::new(File { part, thrown: files.clone() }) as Arc<dyn Slices>;
        let gguf = Gguf::from_slices(parts.into_iter().map(file).collect()).await;
        let gguf = gguf.map_err(|error| told(&files, error))?;
        let config = Config::from_gguf(&gguf).map_err(thrown)?;
        let tokenizer = Tokenizer::from_gguf(&gguf).map_err(thrown)?;
        let template = ChatTemplate::from_gguf(&gguf, None).ok(); // without one there is no chat, but all else
        Ok(Engine { gguf, config, tokenizer, template, files, loaded: None, given: Vec::new() })
    }

    /// Bytes of all tensors: what [`Engine::load`] will read at most.
    #[wasm_bindgen(getter, js_name = tensorBytes)]
    pub fn tensor_bytes(&self) -> f64 {
        self.gguf.tensors().iter().map(|tensor| tensor.size).sum::<u64>() as f64
    }

    /// Sends the weights to the GPU and makes a session, which compiles the shaders. May be called again after the device
    /// was lost. context: tokens, or as the engine finds right.
    pub async fn load(&mut self, context: Option<u32>) -> Result<(), JsValue> {
        self.loaded = None;
        let gpu = Gpu::new().await.map_err(thrown)?;
        let options = SessionOptions { context, ..SessionOptions::default() };
        let model =
            Model::load_for(&gpu, &self.gguf, &options, |_, _| ()).await.map_err(|error| told(&self.files, error))?;
        gpu.work_done().await.map_err(thrown)?; // an upload that failed is told here
        let session = session(&model, context).map_err(thrown)?;
        gpu.work_done().await.map_err(thrown)?;
        let bytes = gpu.asked();
        self.loaded = Some(Loaded { gpu, model, session, bytes });
        Ok(())
    }

    /// Everything about model and GPU, as JSON.
    pub fn card(&self) -> String {
        let config = &self.config;
        let mut formats: HashMap<&str, u64> = HashMap::new();
        for tensor in self.gguf.tensors() {
            let name = Format::from_type(tensor.kind).map_or("?", |format| format.name());
            *formats.entry(name).or_default() += tensor.size;
        }
        let mut card = json!({
            "name": config.name,
            "architecture": config.architecture.name(),
            "parameters": self.gguf.tensors().iter().map(|tensor| tensor.count()).sum::<u64>(),
            "bytes": self.tensor_bytes(),
            "format": formats.into_iter().max_by_key(|&(name, bytes)| (bytes, name)).map(|(name, _)| name),
            "contextLength": config.context_length,
            "vocabSize": config.vocab_size,
            "blockCount": config.block_count,
            "embeddingLength": config.embedding_length,
            "hasChatTemplate": self.template.is_some(),
        });
        if let Some(Loaded { gpu, session, bytes, .. }) = &self.loaded {
            let (card_of_gpu, limits) = (gpu.card(), &gpu.card().limits);
            card["context"] = session.context().into();
            card["gpuBytes"] = (*bytes).into();
            card["gpu"] = json!({
                "name": card_of_gpu.name,
                "software": card_of_gpu.device_type == wgpu::DeviceType::Cpu,
                "f16": card_of_gpu.f16,
                "subgroups": card_of_gpu.subgroups,
                "subgroupSize": [card_of_gpu.subgroup_size.0, card_of_gpu.subgroup_size.1],
                "maxBufferSize": limits.max_buffer_size,
                "maxBindingSize": limits.max_storage_buffer_binding_size,
                "maxWorkgroupStorage": limits.max_compute_workgroup_storage_size,
            });
        }
        card.to_string()
    }

    pub fn tokenize(&self, text: &str, add_special: bool, parse_special: bool) -> Result<Vec<u32>, JsValue> {
        let options = Encode { add_special, parse_special, ..Encode::default() };
        self.tokenizer.encode(text.as_bytes(), &options).map_err(thrown)
    }

    pub fn detokenize(&self, ids: Vec<u32>) -> String {
        self.tokenizer.decode(&ids)
    }

    /// The prompt of a conversation, JSON of `[{role, content}, ..]`, without its oldest turns if they leave no room in the
    /// context: then a system message stays, and the last question always. seconds: the time, since 1970, of the visitor's
    /// time zone.
    #[wasm_bindgen(js_name = chatPrompt)]
    pub fn chat_prompt(&self, messages: &str, max_tokens: Option<u32>, seconds: f64) -> Result<Vec<u32>, JsValue> {
        let Some(template) = &self.template else {
            let hint = "it continues texts: use generate() in the place of chat()";
            return Err(bad("chat", "a model with a chat template", format!("one without; {hint}")));
        };
        let messages: Json =
            serde_json::from_str(messages).map_err(|error| bad("messages", "JSON", error.to_string()))?;
        let Json::Array(mut messages) = messages else {
            return Err(bad("messages", "an array of {role, content}", messages.to_string()));
        };
        let context = self.loaded().map_err(thrown)?.session.context();
        let room = (context / ANSWER_SHARE).min(max_tokens.unwrap_or(u32::MAX)).max(1);
        loop {
            let array = Json::Array(messages.clone());
            let now = DateTime::from_unix(seconds as i64);
            let input = ChatInput { messages: &array, tools: None, add_generation_prompt: true, now };
            let ids = template.prompt(&self.tokenizer, &input).map_err(thrown)?;
            if ids.len() as u64 + room as u64 <= context as u64 {
                return Ok(ids);
            }
            if !drop_oldest(&mut messages) {
                let hint = "The question is too long for it; choose a larger context".into();
                return Err(thrown(Error::ContextFull { context, position: 0, tokens: ids.len() as u32, hint }));
            }
        }
    }

    /// Runs a prompt and gives the pieces of the answer to `piece(text)`. `go_on(prompt_tokens_done)` is asked between passes
    /// and tokens: false ends the answer. Gives statistics as JSON.
    pub async fn answer(
        &mut self,
        prompt: Vec<u32>,
        options: &str,
        piece: &Function,
        go_on: &Function,
    ) -> Result<String, JsValue> {
        let options: AnswerOptions =
            serde_json::from_str(options).map_err(|error| bad("options", "those of an answer", error.to_string()))?;
        self.given.clear();
        let given = RefCell::new(Vec::new());
        let Some(loaded) = &mut self.loaded else { return Err(thrown(not_loaded())) };
        let ask = Ask {
            prompt: &prompt,
            tokenizer: Some(&self.tokenizer),
            sampling: options.sampling(),
            max_tokens: options.max_tokens,
            stop: &options.stop,
            ignore_eos: false,
            interrupted: &|done| go_on.call1(&JsValue::NULL, &(done as f64).into()).is_ok_and(|go_on| go_on.is_falsy()),
            given: &|id| given.borrow_mut().push(id),
        };
        let show = |text: &str| -> Result<(), Error> {
            let _ = piece.call1(&JsValue::NULL, &text.into()); // the worker's own function, which does not throw
            Ok(())
        };
        let outcome = answer(&mut loaded.session, ask, show).await;
        self.given = given.into_inner();
        let Answer { ids, end, seed, new_tokens, first, decode_tps, .. } = outcome.map_err(thrown)?;
        let stop = match end {
            End::Eos => "end",
            End::StopString => "stop-string",
            End::Length => "length",
            End::Context => "context",
            End::Interrupted => "aborted",
        };
        let stats = json!({
            "promptTokens": prompt.len(),
            "newPromptTokens": new_tokens,
            "tokens": ids.len(),
            "timeToFirstToken": first,
            "tokensPerSecond": decode_tps,
            "stop": stop,
            "seed": seed,
            "contextUsed": loaded.session.position(),
            "context": loaded.session.context(),
        });
        Ok(stats.to_string())
    }

    /// The ids that the last answer has given, also when an error ended it.
    pub fn given(&self) -> Vec<u32> {
        self.given.clone()
    }

    /// The logits after the last token of a prompt, [V].
    pub async fn logits(&mut self, prompt: Vec<u32>) -> Result<Vec<f32>, JsValue> {
        let Some(Loaded { session, .. }) = &mut self.loaded else { return Err(thrown(not_loaded())) };
        let new = session.reuse(&prompt);
        session.append(new).await.map_err(thrown)?;
        session.logits().await.map_err(thrown)
    }

    /// A new session with another context; the conversation is forgotten.
    #[wasm_bindgen(js_name = setContext)]
    pub async fn set_context(&mut self, context: u32) -> Result<(), JsValue> {
        let Some(loaded) = &mut self.loaded else { return Err(thrown(not_loaded())) };
        if context == 0 || context > self.config.context_length {
            let expected = format!("1 to the model's {}", self.config.context_length);
            return Err(bad("context", &expected, context.to_string()));
        }
        let (asked, weights) = (loaded.gpu.asked(), loaded.model.weights().bytes());
        let session = session(&loaded.model, Some(context)).map_err(thrown)?;
        loaded.gpu.work_done().await.map_err(thrown)?;
        loaded.bytes = weights + loaded.gpu.asked() - asked;
        loaded.session = session;
        Ok(())
    }

    /// The device as something that can be destroyed while the engine is at work.
    pub fn device(&self) -> Option<Device> {
        self.loaded.as_ref().map(|loaded| Device { gpu: loaded.gpu.clone() })
    }

    pub(super) fn loaded(&self) -> Result<&Loaded, Error> {
        self.loaded.as_ref().ok_or_else(not_loaded)
    }
}

/// A handle of the GPU device.
#[wasm_bindgen]
pub struct Device {
    gpu: Gpu,
}

#[wasm_bindgen]
impl Device {
    /// Gives all of its memory back at once; what uses it fails from now on.
    pub fn destroy(&self) {
        self.gpu.device().destroy();
    }
}

pub(super) fn session(model: &Model, context: Option<u32>) -> Result<Session, Error> {
    model.session(&SessionOptions { context, ..SessionOptions::default() })
}

pub(super) fn not_loaded() -> Error {
    let (expected, got) = ("on the GPU: call load first".into(), "not there".into());
    Error::Argument { what: "the model".into(), expected, got }
}

/// What a file threw, or the engine's own error.
fn told(files: &Thrown, error: Error) -> JsValue {
    files.borrow_mut().take().unwrap_or_else(|| thrown(error))
}

/// Takes the oldest question away, with what belongs to it; false if only the last is left.
fn drop_oldest(messages: &mut Vec<Json>) -> bool {
    let questions: Vec<usize> = (0..messages.len()).filter(|&i| messages[i]["role"] == "user").collect();
    let [first, second, ..] = questions[..] else { return false };
    messages.drain(first..second);
    true
}
