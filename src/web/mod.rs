//! The face that JavaScript sees: one [`Engine`] a model, which web/src/worker.js holds. Numbers and texts cross as they are,
//! options and cards as JSON.

mod engine;
mod error;
mod file;
mod learn;

pub use engine::Engine;

use wasm_bindgen::prelude::*;

/// The engine's version.
#[wasm_bindgen]
pub fn version() -> String {
    env!("CARGO_PKG_VERSION").into()
}

/// Bytes of the module's memory, which never shrinks.
#[wasm_bindgen(js_name = memoryBytes)]
pub fn memory_bytes() -> f64 {
    core::arch::wasm32::memory_size(0) as f64 * 65536.0
}
