//! Training on the GPU, with any weights: adapters on a base that stays as it is, or all of a model.
//!
//! The way of a step: a batch lies flat, one sequence after another (`batch.rs`); the same forward pass as for inference
//! leaves what the backward pass will ask for (`workspace.rs`); the loss is made over shards of the vocabulary, and its
//! gradient goes down the same list in reverse (`backward.rs`); the optimizer changes what learns (`parameters.rs`).

mod adapter_files;
mod backward;
mod batch;
mod batches;
#[cfg(not(target_arch = "wasm32"))]
mod checkpoint;
#[cfg(all(feature = "tokenizer", feature = "chat"))]
mod data;
#[cfg(not(target_arch = "wasm32"))]
mod export;
mod optimizer;
mod options;
mod parameters;
mod plot;
#[cfg(all(feature = "tokenizer", feature = "chat"))]
mod reader;
mod schedule;
mod scratch;
mod trainer;
#[cfg(all(not(target_arch = "wasm32"), feature = "tokenizer"))]
mod vocabulary;
mod workspace;

pub(crate) use batch::counted;
pub use batch::{IGNORED, Sequence};
pub use batches::{Batches, split};
#[cfg(not(target_arch = "wasm32"))]
pub use checkpoint::Place;
#[cfg(all(feature = "tokenizer", feature = "chat"))]
pub use data::{DataKind, DataOptions, Report, read_data, read_data_from};
pub use optimizer::AdamW;
pub use options::{Compute, LoraOptions, Optimizer, TrainOptions};
pub use parameters::{Of, Parameter, Parameters};
pub use plot::loss_svg;
pub use schedule::{Decline, Schedule};
pub use scratch::NewModel;
pub(crate) use scratch::projection;
pub use trainer::{Loss, Trainer};
#[cfg(all(not(target_arch = "wasm32"), feature = "tokenizer"))]
pub use vocabulary::train_vocabulary;
