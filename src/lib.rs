//! Peregrine runs Llama- and Qwen-family language models from GGUF files on any GPU, native and in the browser.

pub mod error;
pub mod formats;
pub mod gguf;
pub mod model;
pub mod reference;
pub mod sampling;

#[cfg(feature = "chat")]
pub mod chat;
#[cfg(feature = "tokenizer")]
pub mod tokenizer;

pub use error::{Error, Result};
pub use gguf::Gguf;
pub use wgpu;
