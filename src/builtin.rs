//! The model that is part of the program: it tells tales, and runs with no download. Its card is models/README.md.

use crate::error::Result;
use crate::gguf::Gguf;

static TALES: &[u8] = include_bytes!("../models/tales-2m.Q8_0.gguf");

/// Peregrine Tales 2M: a tiny llama in Q8_0, trained on public-domain fairy tales; CC0.
pub fn tales() -> Result<Gguf> {
    Gguf::from_static(TALES)
}
