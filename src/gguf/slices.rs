//! A file that is read slice by slice because it is nowhere as a whole: in a browser, one on disk or at a server.

use super::{Header, read};
use crate::error::{Error, Result};
use std::future::Future;
use std::pin::Pin;

/// Bytes on their way.
#[cfg(not(target_arch = "wasm32"))]
pub type Fetch<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + Send + 'a>>;
/// Bytes on their way. What JavaScript gives stays in one thread.
#[cfg(target_arch = "wasm32")]
pub type Fetch<'a> = Pin<Box<dyn Future<Output = Result<Vec<u8>>> + 'a>>;

/// Natively models are shared between threads, and so is what they are read from.
#[cfg(not(target_arch = "wasm32"))]
pub trait Shared: Send + Sync {}
#[cfg(not(target_arch = "wasm32"))]
impl<T: Send + Sync> Shared for T {}
#[cfg(target_arch = "wasm32")]
pub trait Shared {}
#[cfg(target_arch = "wasm32")]
impl<T> Shared for T {}

/// A file whose bytes come when they are asked for.
pub trait Slices: Shared {
    /// Bytes of the file.
    fn size(&self) -> u64;

    /// Exactly `count` bytes from `offset` on; both lie in the file.
    fn read(&self, offset: u64, count: usize) -> Fetch<'_>;
}

/// What is read of a file at first; most headers are longer, since they hold a vocabulary.
const FIRST: u64 = 1 << 20;
/// The longest known headers have 30 MB.
const MOST: u64 = 96 << 20;

/// Reads bytes and counts them.
pub(super) async fn read(file: &dyn Slices, offset: u64, count: usize) -> Result<Vec<u8>> {
    let bytes = file.read(offset, count).await?;
    if bytes.len() != count {
        return Err(Error::gguf(offset, format!("{count} bytes were read and {} came", bytes.len())));
    }
    Ok(bytes)
}

/// The header, from as much of the file's beginning as it takes.
pub(super) async fn header(file: &dyn Slices) -> Result<Header> {
    let mut bytes: Vec<u8> = Vec::new();
    let mut wanted = FIRST;
    loop {
        let end = wanted.min(file.size());
        bytes.extend(read(file, bytes.len() as u64, (end as usize).saturating_sub(bytes.len())).await?);
        if let Some(header) = read::read_beginning(&bytes, file.size())? {
            return Ok(header);
        }
        if wanted >= MOST {
            return Err(Error::gguf(wanted, "the header has no end here; the file is probably damaged"));
        }
        wanted = (wanted * 2).min(MOST);
    }
}
