//! A language model: its numbers (config), its weights on the GPU, what changes while it runs (state), and its
//! forward pass.

pub mod adapters;
pub mod config;
pub mod forward;
mod load;
pub mod rope;
pub mod state;
pub mod tensors;
pub mod weights;

pub use adapters::{Adapters, Target};
pub use config::{Architecture, Config};
pub use load::Model;
pub use rope::{Pairing, Rope};
pub use weights::Weights;
