//! Errors for JavaScript: an `Error` with the whole chain of causes as its message, and a `code`.

use crate::error::Error;
use std::error::Error as _;
use wasm_bindgen::prelude::*;

pub fn thrown(error: Error) -> JsValue {
    let mut message = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        message += &format!(": {cause}");
        source = cause.source();
    }
    with_code(&message, code(&error))
}

/// An argument that JavaScript gave.
pub fn bad(what: &str, expected: &str, got: impl Into<String>) -> JsValue {
    thrown(Error::Argument { what: what.into(), expected: expected.into(), got: got.into() })
}

fn with_code(message: &str, code: &str) -> JsValue {
    let error = js_sys::Error::new(message);
    let _ = js_sys::Reflect::set(&error, &"code".into(), &code.into()); // a new object takes any property
    error.into()
}

/// The codes of web/src/errors.js.
fn code(error: &Error) -> &'static str {
    match error {
        Error::NoGpu { .. } => "no-webgpu",
        Error::DeviceLost { .. } => "device-lost",
        Error::ContextFull { .. } => "context-full",
        Error::Argument { .. } | Error::Template { .. } | Error::Data { .. } => "argument",
        Error::NotGguf { .. }
        | Error::Gguf { .. }
        | Error::MissingKey { .. }
        | Error::Key { .. }
        | Error::MissingTensor { .. }
        | Error::Tensor { .. }
        | Error::Unsupported { .. }
        | Error::Tokenizer { .. } => "bad-file",
        Error::InFile { source, .. } => code(source),
        _ => "engine",
    }
}
