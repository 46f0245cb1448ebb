//! GGUF model files: metadata, tensor table and tensor data, over a memory map, bytes in memory or slices.
//! Reading needs no GPU and copies no weights. Facts: <https://github.com/ggml-org/ggml/blob/master/docs/gguf.md>.

mod read;
mod slices;
mod sniff;
mod split;
mod types;
mod value;
mod write;

use crate::error::{Error, Result};
use crate::formats::Format;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

pub use read::dims;
pub use slices::{Fetch, Slices};
pub use types::TensorType;
pub use value::{Array, Strings, Value};
pub use write::Writer;

/// One tensor of the table. `shape` is in GGUF's order: shape[0] is the length of a row.
#[derive(Debug, Clone)]
pub struct TensorInfo {
    pub name: String,
    pub shape: Vec<u64>,
    pub kind: TensorType,
    /// Which file of a split model holds the data.
    pub part: usize,
    /// Bytes from the start of that file's tensor data.
    pub offset: u64,
    /// Bytes of data.
    pub size: u64,
}

impl TensorInfo {
    /// Weights in the tensor.
    pub fn count(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Rows: everything but the first dimension.
    pub fn rows(&self) -> u64 {
        self.shape[1..].iter().product()
    }
}

/// Bytes of a string that an error text shows.
const MAX_SHOWN: usize = 100;

/// The parsed header of one file.
#[derive(Debug)]
struct Header {
    version: u32,
    alignment: usize,
    metadata: Vec<(String, Value)>,
    keys: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    data_start: u64,
}

/// Where a file's bytes live.
#[derive(Clone)]
enum Bytes {
    #[cfg(not(target_arch = "wasm32"))]
    Map(Arc<memmap2::Mmap>),
    Memory(Arc<[u8]>),
    Static(&'static [u8]),
    Slices(Arc<dyn Slices>),
}

impl Bytes {
    /// Maps a file.
    #[cfg(not(target_arch = "wasm32"))]
    fn open(path: &std::path::Path) -> Result<Bytes> {
        let io = |source| Error::Io { path: path.into(), source };
        // Looked at before it is opened: opening a pipe waits for a writer.
        let kind = std::fs::metadata(path).map_err(io)?;
        if kind.is_dir() {
            let what = "it is a folder; name the .gguf file inside it";
            return Err(io(std::io::Error::new(std::io::ErrorKind::IsADirectory, what)));
        }
        if !kind.is_file() {
            let what = "it is a pipe or a device, which cannot be mapped; save it to a file first";
            return Err(io(std::io::Error::new(std::io::ErrorKind::InvalidInput, what)));
        }
        let file = std::fs::File::open(path).map_err(io)?;
        // SAFETY: the map is read only. A file that another program cuts while we read it raises SIGBUS;
        // no reader of mapped files can rule that out.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
        Ok(Bytes::Map(Arc::new(map)))
    }

    /// The whole file; None if it is read in slices.
    fn whole(&self) -> Option<&[u8]> {
        match self {
            #[cfg(not(target_arch = "wasm32"))]
            Bytes::Map(map) => Some(map),
            Bytes::Memory(bytes) => Some(bytes),
            Bytes::Static(bytes) => Some(bytes),
            Bytes::Slices(_) => None,
        }
    }
}

/// An open model file, or all files of a split one.
pub struct Gguf {
    parts: Vec<(Bytes, u64)>, // (file, where its tensor data starts)
    version: u32,
    alignment: usize,
    metadata: Vec<(String, Value)>,
    keys: HashMap<String, usize>,
    tensors: Vec<TensorInfo>,
    names: HashMap<String, usize>,
}

impl std::fmt::Debug for Gguf {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        write!(f, "Gguf v{} {{ {} metadata keys, {} tensors }}", self.version, self.metadata.len(), self.tensors.len())
    }
}

impl Gguf {
    /// Maps the file and reads its header. Of a split model, name the first part.
    #[cfg(not(target_arch = "wasm32"))]
    pub fn open(path: impl AsRef<std::path::Path>) -> Result<Gguf> {
        let path = path.as_ref();
        let bytes = Bytes::open(path)?;
        let read = || {
            let header = read::read(bytes.whole().unwrap_or_default())?;
            let place = split::Place::of(&header)?;
            let mut gguf = Gguf::from_header(bytes, header)?;
            if let Some(place) = place {
                split::open_others(&mut gguf, path, &place)?;
            }
            Ok(gguf)
        };
        read().map_err(|e: Error| e.in_file(path))
    }

    /// Reads a whole file that is in memory.
    pub fn from_bytes(bytes: impl Into<Arc<[u8]>>) -> Result<Gguf> {
        Gguf::from_part(Bytes::Memory(bytes.into()))
    }

    /// Reads the headers of a file, or of all files of a split model in any order, whose bytes are read in slices when they
    /// are wanted.
    ///
    /// # Errors
    /// What is wrong with a file, or [`Error::Unsupported`] where parts are missing or do not belong together.
    pub async fn from_slices(files: Vec<Arc<dyn Slices>>) -> Result<Gguf> {
        let mut parts = Vec::new();
        for file in files {
            let header = slices::header(&*file).await?;
            parts.push((Bytes::Slices(file), header));
        }
        split::join(parts)
    }

    /// Reads a file that is part of the program.
    pub fn from_static(bytes: &'static [u8]) -> Result<Gguf> {
        Gguf::from_part(Bytes::Static(bytes))
    }

    fn from_part(bytes: Bytes) -> Result<Gguf> {
        let header = read::read(bytes.whole().unwrap_or_default())?;
        split::join(vec![(bytes, header)])
    }

    fn from_header(bytes: Bytes, header: Header) -> Result<Gguf> {
        let mut gguf = Gguf {
            parts: Vec::new(),
            version: header.version,
            alignment: header.alignment,
            metadata: header.metadata,
            keys: header.keys,
            tensors: Vec::new(),
            names: HashMap::new(),
        };
        gguf.add_part(bytes, header.data_start, header.tensors)?;
        Ok(gguf)
    }

    fn add_part(&mut self, bytes: Bytes, data_start: u64, tensors: Vec<TensorInfo>) -> Result<()> {
        let part = self.parts.len();
        for tensor in tensors {
            if self.names.insert(tensor.name.clone(), self.tensors.len()).is_some() {
                return Err(Error::gguf(data_start + tensor.offset, format!("duplicate tensor {}", tensor.name)));
            }
            self.tensors.push(TensorInfo { part, ..tensor });
        }
        self.parts.push((bytes, data_start));
        Ok(())
    }

    pub fn version(&self) -> u32 {
        self.version
    }

    pub fn alignment(&self) -> usize {
        self.alignment
    }

    /// All metadata, in the file's order.
    pub fn metadata(&self) -> &[(String, Value)] {
        &self.metadata
    }

    /// All tensors, in the file's order.
    pub fn tensors(&self) -> &[TensorInfo] {
        &self.tensors
    }

    pub fn tensor(&self, name: &str) -> Option<&TensorInfo> {
        self.names.get(name).map(|&i| &self.tensors[i])
    }

    /// The bytes, as they lie in the file, of a tensor of this file.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a file that is read in slices: [`Gguf::read`] does it.
    pub fn data(&self, tensor: &TensorInfo) -> Result<&[u8]> {
        if tensor.size == 0 {
            return Ok(&[]); // where it would begin may lie behind the file's end
        }
        let (bytes, start) = &self.parts[tensor.part];
        let start = (start + tensor.offset) as usize;
        let whole = bytes.whole().ok_or_else(|| Error::Unsupported {
            what: format!("{} as a whole, of a file that is read in slices", tensor.name),
            hint: "Gguf::read gives any range of it".into(),
        })?;
        Ok(&whole[start..start + tensor.size as usize])
    }

    /// Some of a tensor's bytes, which must lie in it, from wherever the file is.
    ///
    /// # Errors
    /// Those of the slices: a file in memory or on a map has none.
    pub async fn read(&self, tensor: &TensorInfo, range: Range<u64>) -> Result<Cow<'_, [u8]>> {
        let (bytes, start) = &self.parts[tensor.part];
        if let Bytes::Slices(slices) = bytes {
            let count = (range.end - range.start) as usize;
            return slices::read(&**slices, start + tensor.offset + range.start, count).await.map(Cow::Owned);
        }
        Ok(Cow::Borrowed(&self.data(tensor)?[range.start as usize..range.end as usize]))
    }

    /// A tensor as f32, whatever its format.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a type that we cannot decode; those of [`Gguf::data`].
    pub fn floats(&self, tensor: &TensorInfo) -> Result<Vec<f32>> {
        decode(tensor, self.data(tensor)?)
    }

    /// [`Gguf::floats`] from wherever the file is.
    ///
    /// # Errors
    /// [`Error::Tensor`] for a type that we cannot decode; those of [`Gguf::read`].
    pub async fn read_floats(&self, tensor: &TensorInfo) -> Result<Vec<f32>> {
        decode(tensor, &self.read(tensor, 0..tensor.size).await?)
    }

    pub fn get(&self, key: &str) -> Option<&Value> {
        self.keys.get(key).map(|&i| &self.metadata[i].1)
    }

    /// The key as a number that fits u32, of any integer width; None if absent, an error if it is something else.
    pub fn u32(&self, key: &str) -> Result<Option<u32>> {
        self.typed(key, "an unsigned integer below 2^32", |v| v.as_u64().and_then(|n| n.try_into().ok()))
    }

    pub fn f32(&self, key: &str) -> Result<Option<f32>> {
        self.typed(key, "a finite number", |v| v.as_f32().filter(|n| n.is_finite()))
    }

    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        self.typed(key, "a bool", Value::as_bool)
    }

    pub fn str(&self, key: &str) -> Result<Option<&str>> {
        self.typed(key, "a UTF-8 string", Value::as_str)
    }

    pub fn strings(&self, key: &str) -> Result<Option<&Strings>> {
        self.typed(key, "an array of strings", |v| match v {
            Value::Array(Array::String(strings)) => Some(strings),
            _ => None,
        })
    }

    fn typed<'a, T>(&'a self, key: &str, expected: &str, cast: impl Fn(&'a Value) -> Option<T>) -> Result<Option<T>> {
        let Some(value) = self.get(key) else { return Ok(None) };
        cast(value).map(Some).ok_or_else(|| Error::Key {
            key: key.into(),
            expected: expected.into(),
            got: match value {
                Value::String(text) => {
                    let shown = String::from_utf8_lossy(&text[..text.len().min(MAX_SHOWN)]);
                    let more = if text.len() > MAX_SHOWN { "..." } else { "" };
                    format!("the string {shown:?}{more}")
                }
                _ => value.as_u64().map_or_else(|| value.kind(), |n| n.to_string()),
            },
        })
    }
}

fn decode(tensor: &TensorInfo, data: &[u8]) -> Result<Vec<f32>> {
    let Some(format) = Format::from_type(tensor.kind) else {
        let names: Vec<_> = Format::ALL.iter().map(|format| format.name()).collect();
        let expected = format!("one of the formats {}", names.join(", "));
        return Err(Error::Tensor { name: tensor.name.clone(), expected, got: tensor.kind.name().into() });
    };
    let mut values = vec![0.0; tensor.count() as usize];
    format.decode(data, &mut values);
    Ok(values)
}
