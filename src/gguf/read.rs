//! Reads a GGUF header: metadata and tensor table. Every count, length, type and offset is checked before it is used,
//! so that no file can make us panic, loop without end, or allocate more than its own size justifies.

use super::types::TensorType;
use super::value::{Array, Strings, Value};
use super::{Header, TensorInfo};
use crate::error::{Error, Result};
use std::collections::HashMap;
use std::fmt::Display;

/// Arrays of arrays deeper than this are nonsense.
const MAX_NESTING: usize = 8;
/// ggml's own limit, without the closing zero.
pub(super) const MAX_NAME: usize = 63;
/// The format's own limit.
pub(super) const MAX_KEY: usize = 65535;
/// A metadata entry takes at least: key length 8, key 1, type 4, value 1.
const MIN_ENTRY: usize = 14;
/// A tensor entry takes at least: name length 8, name 1, dimension count 4, one dimension 8, type 4, offset 8.
const MIN_TENSOR: usize = 33;

struct Cursor<'a> {
    /// The file, or its beginning.
    bytes: &'a [u8],
    /// Of the file.
    size: u64,
    at: u64,
    /// Whether something was wanted that lies in the file, but behind `bytes`.
    short: bool,
}

macro_rules! numbers {
    ($($name:ident: $type:ty,)*) => {
        impl Cursor<'_> {
            $(fn $name(&mut self, what: impl Display) -> Result<$type> {
                let bytes = self.take(size_of::<$type>(), what)?;
                Ok(<$type>::from_le_bytes(bytes.try_into().expect("take gives this many bytes")))
            })*
        }
    };
}
numbers! { u8: u8, i8: i8, u16: u16, i16: i16, u32: u32, i32: i32, f32: f32, u64: u64, i64: i64, f64: f64, }

impl<'a> Cursor<'a> {
    fn left(&self) -> u64 {
        self.size - self.at
    }

    fn take(&mut self, n: usize, what: impl Display) -> Result<&'a [u8]> {
        let at = self.at as usize; // below the length of `bytes`
        if n > self.bytes.len() - at {
            self.short = n as u64 <= self.left();
            return Err(Error::gguf(
                self.at,
                format!(
                    "the file ends inside {what}: {n} bytes wanted, {} left; it is truncated or still downloading",
                    self.left()
                ),
            ));
        }
        self.at += n as u64;
        Ok(&self.bytes[at..at + n])
    }

    /// A count of things that take at least `min_bytes` each: more than the rest of the file can hold is refused.
    fn count(&mut self, min_bytes: usize, what: impl Display) -> Result<usize> {
        let at = self.at;
        let count = self.u64(&what)?;
        let most = self.left() / min_bytes as u64;
        if count > most {
            return Err(Error::gguf(
                at,
                format!("{what} is {count}, but the rest of the file holds {most} at most; it is truncated or damaged"),
            ));
        }
        Ok(usize::try_from(count).unwrap_or(usize::MAX)) // nothing holds so many where they do not fit: taking them fails
    }

    fn string(&mut self, what: impl Display) -> Result<&'a [u8]> {
        let length = self.count(1, format_args!("string length of {what}"))?;
        self.take(length, what)
    }

    fn bool(&mut self, what: impl Display) -> Result<bool> {
        let at = self.at;
        match self.u8(&what)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(Error::gguf(at, format!("{what}: a bool is 0 or 1, got {other}"))),
        }
    }

    fn value(&mut self, key: &str) -> Result<Value> {
        let at = self.at;
        Ok(match self.u32(format_args!("the value type of {key}"))? {
            0 => Value::U8(self.u8(key)?),
            1 => Value::I8(self.i8(key)?),
            2 => Value::U16(self.u16(key)?),
            3 => Value::I16(self.i16(key)?),
            4 => Value::U32(self.u32(key)?),
            5 => Value::I32(self.i32(key)?),
            6 => Value::F32(self.f32(key)?),
            7 => Value::Bool(self.bool(key)?),
            8 => Value::String(self.string(key)?.to_vec()),
            9 => Value::Array(self.array(key, 1)?),
            10 => Value::U64(self.u64(key)?),
            11 => Value::I64(self.i64(key)?),
            12 => Value::F64(self.f64(key)?),
            other => return Err(unknown_type(at, key, other)),
        })
    }

    fn array(&mut self, key: &str, depth: usize) -> Result<Array> {
        if depth > MAX_NESTING {
            return Err(Error::gguf(self.at, format!("{key}: arrays are nested deeper than {MAX_NESTING}")));
        }
        let at = self.at;
        let kind = self.u32(format_args!("the element type of {key}"))?;
        let min_bytes = match kind {
            0 | 1 | 7 => 1,
            2 | 3 => 2,
            4..=6 => 4,
            8 | 10..=12 => 8,
            9 => 12,
            other => return Err(unknown_type(at, key, other)),
        };
        let n = self.count(min_bytes, format_args!("array length of {key}"))?;
        Ok(match kind {
            0 => Array::U8(self.take(n, key)?.to_vec()),
            1 => Array::I8(self.list(n, |c| c.i8(key))?),
            2 => Array::U16(self.list(n, |c| c.u16(key))?),
            3 => Array::I16(self.list(n, |c| c.i16(key))?),
            4 => Array::U32(self.list(n, |c| c.u32(key))?),
            5 => Array::I32(self.list(n, |c| c.i32(key))?),
            6 => Array::F32(self.list(n, |c| c.f32(key))?),
            7 => Array::Bool(self.list(n, |c| c.bool(key))?),
            8 => {
                let mut strings = Strings::default();
                for _ in 0..n {
                    strings.push(self.string(key)?);
                }
                Array::String(strings)
            }
            9 => Array::Array(self.list(n, |c| c.array(key, depth + 1))?),
            10 => Array::U64(self.list(n, |c| c.u64(key))?),
            11 => Array::I64(self.list(n, |c| c.i64(key))?),
            _ => Array::F64(self.list(n, |c| c.f64(key))?),
        })
    }

    /// Grows as the elements come: a count that lies reserves nothing.
    fn list<T>(&mut self, n: usize, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        (0..n).map(|_| read(self)).collect()
    }
}

fn unknown_type(at: u64, key: &str, kind: u32) -> Error {
    Error::gguf(at, format!("{key}: unknown value type {kind} (known are 0 to 12)"))
}

/// Reads the header of one file. `bytes` is the whole file: tensor data is checked to lie inside it.
pub(super) fn read(bytes: &[u8]) -> Result<Header> {
    header(&mut Cursor { bytes, size: bytes.len() as u64, at: 0, short: false })
}

/// The same from the beginning of a file of `size` bytes; None if the header goes on behind it.
pub(super) fn read_beginning(bytes: &[u8], size: u64) -> Result<Option<Header>> {
    let mut cursor = Cursor { bytes, size, at: 0, short: false };
    match header(&mut cursor) {
        Err(_) if cursor.short => Ok(None),
        outcome => outcome.map(Some),
    }
}

fn header(cursor: &mut Cursor) -> Result<Header> {
    super::sniff::check(cursor.bytes)?;
    cursor.at = 4; // behind the magic
    let version = cursor.u32("the version")?;
    if !(2..=3).contains(&version) {
        return Err(super::sniff::version_error(version));
    }
    let n_tensors = cursor.count(1, "the tensor count")?;
    let n_entries = cursor.count(MIN_ENTRY, "the metadata count")?;

    let mut metadata = Vec::new();
    let mut keys = HashMap::new();
    for i in 0..n_entries {
        let at = cursor.at;
        let key = cursor.string(format_args!("metadata key {i}"))?;
        if key.is_empty() {
            return Err(Error::gguf(at, format!("metadata key {i} is empty")));
        }
        if key.len() > MAX_KEY {
            let length = key.len();
            return Err(Error::gguf(at, format!("metadata key {i} has {length} bytes, the limit is {MAX_KEY}")));
        }
        let key = String::from_utf8_lossy(key).into_owned();
        let value = cursor.value(&key)?;
        if keys.insert(key.clone(), metadata.len()).is_some() {
            return Err(Error::gguf(at, format!("duplicate metadata key {key}")));
        }
        metadata.push((key, value));
    }

    let alignment = alignment(keys.get("general.alignment").map(|&i: &usize| &metadata[i].1))?;
    let most = cursor.left() / MIN_TENSOR as u64;
    if n_tensors as u64 > most {
        return Err(Error::gguf(
            8,
            format!(
                "the tensor count is {n_tensors}, but the rest of the file holds {most} at most; it is truncated or damaged"
            ),
        ));
    }
    let mut tensors = Vec::new(); // it grows as they come: a count that lies reserves nothing
    for i in 0..n_tensors {
        tensors.push(tensor(cursor, i, alignment)?);
    }
    let data_start = cursor.at.next_multiple_of(alignment as u64);
    check_data(&tensors, data_start, cursor.size)?;
    Ok(Header { version, alignment, metadata, keys, tensors, data_start })
}

/// The alignment that `general.alignment` says.
pub(super) fn alignment(value: Option<&Value>) -> Result<usize> {
    let Some(value) = value else { return Ok(32) };
    match value.as_u64() {
        Some(alignment) if alignment.is_power_of_two() && alignment <= 1 << 30 => Ok(alignment as usize),
        number => Err(Error::Key {
            key: "general.alignment".into(),
            expected: "a power of two".into(),
            got: number.map_or_else(|| value.kind(), |n| n.to_string()),
        }),
    }
}

fn tensor(cursor: &mut Cursor, index: usize, alignment: usize) -> Result<TensorInfo> {
    let entry = cursor.at;
    let name = cursor.string(format_args!("the name of tensor {index} in the tensor list"))?;
    if name.is_empty() || name.len() > MAX_NAME {
        let length = name.len();
        return Err(Error::gguf(
            entry,
            format!("tensor {index}: the name has {length} bytes, the limit is 1 to {MAX_NAME}"),
        ));
    }
    let name = String::from_utf8_lossy(name).into_owned();
    let here = format!("tensor {name} in the tensor list");

    let at = cursor.at;
    let n_dims = cursor.u32(&here)?;
    if !(1..=4).contains(&n_dims) {
        return Err(Error::gguf(at, format!("tensor {name}: {n_dims} dimensions, expected 1 to 4")));
    }
    let shape = (0..n_dims).map(|_| cursor.u64(&here)).collect::<Result<Vec<u64>>>()?;

    let kind = TensorType(cursor.u32(&here)?);
    let size = byte_size(&shape, kind).map_err(|what| Error::gguf(entry, format!("tensor {name}: {what}")))?;

    let at = cursor.at;
    let offset = cursor.u64(&here)?;
    if offset % alignment as u64 != 0 {
        return Err(Error::gguf(
            at,
            format!("tensor {name}: offset {offset} is no multiple of the alignment {alignment}"),
        ));
    }
    Ok(TensorInfo { name, shape, kind, part: 0, offset, size })
}

/// Bytes of a tensor, or what is wrong with it. The product of any of the dimensions fits u64 afterwards, also where
/// another one is 0.
pub(super) fn byte_size(shape: &[u64], kind: TensorType) -> std::result::Result<u64, String> {
    let Some((block, block_bytes)) = kind.block() else {
        return Err(match kind.removed() {
            Some(old) => format!("type {old} was removed from the format; convert the model again, to Q4_0 say"),
            None => format!("unknown type {}", kind.0),
        });
    };
    if !shape[0].is_multiple_of(block) {
        let (row, kind) = (shape[0], kind.name());
        return Err(format!("a row of {row} weights is no multiple of {kind}'s block of {block}"));
    }
    let fits = shape
        .iter()
        .try_fold(1u64, |product, &dim| product.checked_mul(dim.max(1)))
        .and_then(|weights| weights.checked_mul(block_bytes))
        .is_some_and(|most| most <= i64::MAX as u64);
    if !fits {
        return Err(format!("size overflow, its shape is {}", dims(shape)));
    }
    Ok(shape.iter().product::<u64>() / block * block_bytes)
}

/// Every tensor lies inside the file, and no two overlap. Gaps and any order are valid.
fn check_data(tensors: &[TensorInfo], data_start: u64, file_size: u64) -> Result<()> {
    let data_size = file_size.saturating_sub(data_start);
    for t in tensors {
        if t.offset.checked_add(t.size).is_none_or(|end| end > data_size) {
            return Err(Error::gguf(
                data_start,
                format!(
                    "tensor {}: offset {} and size {} lie outside the file, which has {data_size} bytes of tensor data; it is truncated or still downloading",
                    t.name, t.offset, t.size
                ),
            ));
        }
    }
    let mut by_offset: Vec<&TensorInfo> = tensors.iter().filter(|t| t.size > 0).collect();
    by_offset.sort_by_key(|t| t.offset);
    for pair in by_offset.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if a.offset + a.size > b.offset {
            return Err(Error::gguf(
                data_start + b.offset,
                format!(
                    "tensors {} and {} overlap: offset {} lies before {}",
                    a.name,
                    b.name,
                    b.offset,
                    a.offset + a.size
                ),
            ));
        }
    }
    Ok(())
}

/// A shape as GGUF people write it, fastest dimension first: "576x49152".
pub fn dims(shape: &[u64]) -> String {
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}
