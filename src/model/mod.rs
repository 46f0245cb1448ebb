//! A language model: its numbers (config), its weights on the GPU, and its forward pass.

pub mod config;
pub mod rope;

pub use config::{Architecture, Config};
pub use rope::{Pairing, Rope};
