//! Config: the numbers of a model, from GGUF metadata.

pub struct Config {}
