//! Peregrine runs and trains Llama- and Qwen-family language models from GGUF files on any GPU: Vulkan, Metal, DX12 and,
//! compiled to WebAssembly, WebGPU. All of its maths is in WGSL compute shaders; quantized weights stay quantized on the GPU.
//!
//! # The tour
//!
//! | stage | function | file | output |
//! |---|---|---|---|
//! | open | [`Gguf::open`] | `gguf/` | metadata and tensors over a memory map |
//! | GPU | [`Gpu::new`], [`Gpu::from_device`] | `gpu/` | a device, made here or handed over by the app |
//! | load | [`Model::load`] | `model/` | config and weights on the GPU |
//! | session | [`Model::session`] | `session.rs` | a KV cache, and plans of steps that are replayed |
//! | prompt | [`Session::append`] | `plan.rs`, `kernels/` | logits on the GPU |
//! | tokens | [`Session::generate`] | `generate.rs`, `sampling/` | a stream of ids that the caller pulls |
//! | training | [`train::Trainer`] | `train/`, `sequences.rs` | adapters, or the model's own weights, that learn |
//! | text | [`tokenizer::Tokenizer`] | `tokenizer/`, `chat/` | prompts to ids, ids to text |
//!
//! ```no_run
//! use peregrine::{GenerateOptions, Gguf, Gpu, Model, SessionOptions, block_on, tokenizer::{Encode, Tokenizer}};
//!
//! let gguf = Gguf::open("model.gguf")?;
//! let gpu = block_on(Gpu::new())?;
//! let model = block_on(Model::load(&gpu, &gguf, |done, total| eprintln!("{done} of {total} bytes")))?;
//! let tokenizer = Tokenizer::from_gguf(&gguf)?;
//! let mut session = model.session(&SessionOptions::default())?;
//! block_on(session.append(&tokenizer.encode(b"Once upon a time", &Encode::default())?))?;
//! let mut text = tokenizer.stream();
//! let end_ids = tokenizer.end_ids().to_vec();
//! for id in session.generate(GenerateOptions { max_tokens: Some(50), end_ids, ..Default::default() })? {
//!     print!("{}", text.push(id?));
//! }
//! # Ok::<(), peregrine::Error>(())
//! ```
//!
//! # Words with one meaning
//!
//! **plan**: the recorded steps of one pass. **step**: one dispatch. **kernel**: a compiled pipeline and its layout.
//! **session**: one sequence on a model. **block**: a transformer block, or (of a weight format) 32 weights of a row;
//! 256 are a **super-block**. **head**, **kv head**: of queries; of keys and values, which several heads share. **row**:
//! of a matrix or of activations. **token**: an id of the vocabulary. **position**: a token's place in its sequence.
//! **prefill**: running a prompt in chunks. **decode**: running one token. **GPU adapter**: wgpu's; *adapter* alone will
//! mean LoRA. Dims: T tokens, C channels (embedding length), H heads, KV kv heads, D head size, F feed-forward,
//! V vocabulary.
//!
//! # What it does not do
//!
//! It does not print, keep global state, choose the app's loop or run on the CPU in silence: without a GPU adapter
//! (a software one will do) it returns an error. Mixture-of-experts models and a server are not here yet.
//!
//! # Features
//!
//! The default features are those of the binary. `default-features = false` leaves the engine alone; `tokenizer` and `chat`
//! add text and chat templates, `builtin-model` the 3 MB model that [`builtin`] gives.

#[cfg(feature = "tokenizer")]
pub mod answer;
#[cfg(not(target_arch = "wasm32"))]
pub mod bench;
#[cfg(feature = "builtin-model")]
pub mod builtin;
#[cfg(feature = "tokenizer")]
mod clock;
pub mod compare;
pub mod error;
#[cfg(not(target_arch = "wasm32"))]
pub mod files;
pub mod formats;
pub mod generate;
pub mod gguf;
pub mod gpu;
pub mod kernel;
pub mod kernels;
pub mod model;
pub mod plan;
#[cfg(not(target_arch = "wasm32"))]
pub mod profile;
pub mod reference;
pub mod sampling;
pub mod sequences;
pub mod session;
pub mod shaders;
pub mod taps;
pub mod tensor;
#[cfg(not(target_arch = "wasm32"))]
pub mod tune;
pub mod weight;

#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "tokenizer")]
pub mod tokenizer;
pub mod train;
#[cfg(all(target_arch = "wasm32", feature = "tokenizer", feature = "chat", feature = "peft"))]
pub mod web;

pub use error::{Error, Result};
pub use generate::{GenerateOptions, Generation, Stop};
pub use gguf::Gguf;
pub use gpu::{Gpu, GpuCard, GpuOptions, Matrix, Profile};
pub use kernels::KvFormat;
pub use model::{Config, Model};
#[cfg(not(target_arch = "wasm32"))]
pub use pollster::block_on;
pub use sampling::{Sampler, Sampling};
pub use sequences::SequenceLogits;
pub use session::{Session, SessionOptions};
pub use taps::{Activation, Statistics, Tapped, linear_cka};
pub use wgpu;
