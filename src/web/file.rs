//! A model's file, or a part of it, that JavaScript reads: web/src/source.js.

use crate::error::{Error, Result};
use crate::gguf::{Fetch, Slices};
use js_sys::{Promise, Uint8Array};
use std::cell::RefCell;
use std::rc::Rc;
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    /// `{name, size, read(offset, length): Promise<Uint8Array>}`
    pub type Part;
    #[wasm_bindgen(method, getter)]
    fn name(this: &Part) -> String;
    #[wasm_bindgen(method, getter)]
    fn size(this: &Part) -> f64;
    #[wasm_bindgen(method, catch)]
    fn read(this: &Part, offset: f64, length: f64) -> std::result::Result<Promise, JsValue>;
}

/// What a part threw last: it goes back to JavaScript as it came, so that an abort stays one.
pub type Thrown = Rc<RefCell<Option<JsValue>>>;

pub struct File {
    pub part: Part,
    pub thrown: Thrown,
}

impl Slices for File {
    fn size(&self) -> u64 {
        self.part.size() as u64
    }

    fn read(&self, offset: u64, count: usize) -> Fetch<'_> {
        Box::pin(async move {
            let bytes = match self.part.read(offset as f64, count as f64) {
                Ok(promise) => JsFuture::from(promise).await,
                Err(thrown) => Err(thrown),
            };
            let failed = |thrown: JsValue| -> Error {
                let source = std::io::Error::other(format!("{thrown:?}"));
                *self.thrown.borrow_mut() = Some(thrown);
                Error::Io { path: self.part.name().into(), source }
            };
            let bytes: Result<Uint8Array> = bytes.map(|bytes| bytes.unchecked_into()).map_err(failed);
            Ok(bytes?.to_vec())
        })
    }
}
