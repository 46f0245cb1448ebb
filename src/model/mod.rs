//! A language model: its numbers (config), its weights on the GPU, and its forward pass.

pub mod config;

pub use config::Config;
