//! Recognises what is not a GGUF file of this byte order and version, and names it.

use crate::error::{Error, Result};

/// Passes on files that begin with GGUF's magic and a version in our byte order.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    if bytes.starts_with(b"GGUF") {
        return Ok(());
    }
    let found = if bytes.is_empty() { "an empty file" } else { "something else" };
    Err(Error::NotGguf { found: found.into(), hint: "Give a .gguf file".into() })
}

pub(super) fn version_error(version: u32) -> Error {
    Error::gguf(4, format!("GGUF version {version} is not supported; this reader knows versions 2 and 3"))
}
