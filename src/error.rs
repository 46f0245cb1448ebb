//! The crate's one error type. Each text says what, where, what was expected, what was found and, where we know, what to do.

use std::path::PathBuf;

/// What every fallible function of the crate returns.
pub type Result<T> = std::result::Result<T, Error>;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file could not be opened or read.
    #[error("cannot read {}", path.display())]
    Io { path: PathBuf, source: std::io::Error },

    /// A file could not be written.
    #[error("cannot write the file")]
    Write { source: std::io::Error },

    /// The error lies in this file; the source says where.
    #[error("{}", path.display())]
    InFile { path: PathBuf, source: Box<Error> },

    /// The bytes are not a GGUF file, but something we can name.
    #[error("not a GGUF model: this is {found}. {hint}")]
    NotGguf { found: String, hint: String },

    /// The GGUF bytes contradict the format; `offset` counts from the file's first byte.
    #[error("broken GGUF at byte {offset}: {what}")]
    Gguf { offset: u64, what: String },

    /// A metadata key that the model needs is absent.
    #[error("missing metadata key {key}: {hint}")]
    MissingKey { key: String, hint: String },

    /// A metadata key holds a value that cannot be used.
    #[error("metadata key {key}: expected {expected}, got {got}")]
    Key { key: String, expected: String, got: String },

    /// A tensor that the architecture needs is absent.
    #[error("missing tensor {name}: {hint}")]
    MissingTensor { name: String, hint: String },

    /// A tensor has another shape or format than its place needs.
    #[error("tensor {name}: expected {expected}, got {got}")]
    Tensor { name: String, expected: String, got: String },

    /// A valid file or request that this version does not do.
    #[error("unsupported: {what}. {hint}")]
    Unsupported { what: String, hint: String },

    /// No GPU adapter fits.
    #[error("no GPU adapter: {what}. {hint}")]
    NoGpu { what: String, hint: String },

    /// The GPU or its driver refused something; `what` names the object.
    #[error("GPU error in {what}: {message}")]
    Gpu { what: String, message: String },

    /// The device is gone (driver reset, unplugged, destroyed); load the model again on a new one.
    #[error("the GPU device was lost: {message}. Create a new device and load the model again")]
    DeviceLost { message: String },

    /// A device limit is too small for this model; both numbers are bytes.
    #[error("{what} needs {needed} bytes, but {limit} of {gpu} is {allowed} bytes. {hint}")]
    Limit { what: String, needed: u64, limit: &'static str, gpu: String, allowed: u64, hint: String },

    /// The tokenizer in the file cannot be built, or the text cannot be tokenized.
    #[error("tokenizer: {what}")]
    Tokenizer { what: String },

    /// A chat template is absent, broken, or raised an error of its own.
    #[error("chat template {name}: {what}")]
    Template { name: String, what: String },

    /// Prompt and answer do not fit the session's context.
    #[error("the tokens do not fit into the context of {context}: {position} in use, {tokens} more wanted. {hint}")]
    ContextFull { context: u32, position: u32, tokens: u32, hint: String },

    /// A line of training data that cannot be used; `line` counts from 1. `what` says what was expected and found.
    #[error("{}, line {line}: {what}", path.display())]
    Data { path: PathBuf, line: u64, what: String, source: Option<Box<Error>> },

    /// A NaN or infinity among the logits: the weights are damaged, or a kernel is wrong.
    #[error(
        "the logits at position {position} are not finite (id {id} has {value}): no token can be chosen. The weights are probably damaged"
    )]
    NotFinite { position: u32, id: u32, value: f32 },

    /// An argument that cannot be used.
    #[error("{what}: expected {expected}, got {got}")]
    Argument { what: String, expected: String, got: String },
}

impl Error {
    pub(crate) fn gguf(offset: u64, what: impl Into<String>) -> Error {
        Error::Gguf { offset, what: what.into() }
    }

    #[cfg(not(target_arch = "wasm32"))]
    pub(crate) fn in_file(self, path: impl Into<PathBuf>) -> Error {
        Error::InFile { path: path.into(), source: Box::new(self) }
    }
}
