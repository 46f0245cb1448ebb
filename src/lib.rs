//! Peregrine runs Llama- and Qwen-family language models from GGUF files on any GPU, native and in the browser.

#[cfg(not(target_arch = "wasm32"))]
pub mod bench;
#[cfg(feature = "builtin-model")]
pub mod builtin;
pub mod compare;
pub mod error;
pub mod formats;
pub mod generate;
pub mod gguf;
pub mod gpu;
pub mod kernel;
pub mod kernels;
pub mod model;
pub mod plan;
pub mod reference;
pub mod sampling;
pub mod session;
pub mod shaders;
pub mod tensor;
pub mod weight;

#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "tokenizer")]
pub mod tokenizer;
#[cfg(all(target_arch = "wasm32", feature = "tokenizer", feature = "chat"))]
pub mod web;

pub use error::{Error, Result};
pub use generate::{GenerateOptions, Generation, Stop};
pub use gguf::Gguf;
pub use gpu::{Gpu, GpuCard, GpuOptions, Profile};
pub use kernels::KvFormat;
pub use model::{Config, Model};
#[cfg(not(target_arch = "wasm32"))]
pub use pollster::block_on;
pub use sampling::{Sampler, Sampling};
pub use session::{Session, SessionOptions};
pub use wgpu;
