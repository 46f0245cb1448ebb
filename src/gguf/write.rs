//! Writes GGUF files, version 3: metadata of every kind, and tensors as bytes in any type.

use super::read::{MAX_KEY, MAX_NAME, alignment, byte_size};
use super::{Array, TensorType, Value};
use crate::error::{Error, Result};
use std::collections::HashSet;
use std::io::Write;

/// Collects what a file shall hold, in order; [`Writer::write`] writes it. Data that is too large to be held is left to
/// [`Writer::write_with`].
#[derive(Debug, Clone, Default)]
pub struct Writer<'a> {
    metadata: Vec<(String, Value)>,
    tensors: Vec<NewTensor<'a>>,
}

#[derive(Debug, Clone)]
struct NewTensor<'a> {
    name: String,
    shape: Vec<u64>,
    kind: TensorType,
    data: Option<&'a [u8]>,
}

impl<'a> Writer<'a> {
    pub fn new() -> Writer<'a> {
        Writer::default()
    }

    /// Sets a key, in place if it is there already.
    pub fn set(&mut self, key: &str, value: impl Into<Value>) -> &mut Self {
        let value = value.into();
        match self.metadata.iter_mut().find(|entry| entry.0 == key) {
            Some(entry) => entry.1 = value,
            None => self.metadata.push((key.into(), value)),
        }
        self
    }

    /// Where tensors begin: at multiples of this power of two (32 unless set), which is the key `general.alignment`.
    pub fn alignment(&mut self, alignment: u32) -> &mut Self {
        self.set("general.alignment", alignment)
    }

    /// Adds a tensor; `shape[0]` is the length of a row, `data` whole blocks of its type.
    pub fn tensor(&mut self, name: &str, shape: &[u64], kind: TensorType, data: &'a [u8]) -> &mut Self {
        self.tensors.push(NewTensor { name: name.into(), shape: shape.into(), kind, data: Some(data) });
        self
    }

    /// Adds a tensor whose data [`Writer::write_with`] will ask for.
    pub fn tensor_later(&mut self, name: &str, shape: &[u64], kind: TensorType) -> &mut Self {
        self.tensors.push(NewTensor { name: name.into(), shape: shape.into(), kind, data: None });
        self
    }

    /// # Errors
    /// [`Error::Argument`] if the file would not be read back: a bad alignment, shape, key or name, a name that stands
    /// twice, data of another size than the shape says; [`Error::Write`] for what `out` reports.
    pub fn write(&self, out: &mut impl Write) -> Result<()> {
        self.write_with(out, |_, _| Ok(()))
    }

    /// As [`Writer::write`]; `fill` writes the data of each tensor that was added without, given its name, in order.
    pub fn write_with(
        &self,
        out: &mut impl Write,
        mut fill: impl FnMut(&str, &mut dyn Write) -> std::io::Result<()>,
    ) -> Result<()> {
        let failed = |source| Error::Write { source };
        let align = self.align()?;
        out.write_all(&self.header()?).map_err(failed)?;
        for tensor in &self.tensors {
            let size = tensor.size()?;
            let mut counted = Counted { out, count: 0 };
            match tensor.data {
                Some(data) => counted.write_all(data).map_err(failed)?,
                None => fill(&tensor.name, &mut counted).map_err(failed)?,
            }
            if counted.count != size {
                return Err(tensor.wrong_size(size, counted.count));
            }
            let padding = size.next_multiple_of(align as u64) - size;
            out.write_all(&vec![0; padding as usize]).map_err(failed)?;
        }
        Ok(())
    }

    /// The whole file in memory.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(&mut bytes)?;
        Ok(bytes)
    }

    /// Bytes of the whole file.
    ///
    /// # Errors
    /// Those of [`Writer::header`].
    pub fn size(&self) -> Result<u64> {
        let align = self.align()? as u64;
        let header = self.header()?.len() as u64;
        self.tensors.iter().try_fold(header, |at, tensor| Ok(at + tensor.size()?.next_multiple_of(align)))
    }

    /// Everything before the tensor data, padded to where that begins.
    ///
    /// # Errors
    /// Those of [`Writer::write`] that need no data written.
    pub fn header(&self) -> Result<Vec<u8>> {
        let argument =
            |what: &str, expected: String, got: String| Err(Error::Argument { what: what.into(), expected, got });
        let align = self.align()?;
        let mut out = b"GGUF".to_vec();
        out.extend(3u32.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            if key.is_empty() || key.len() > MAX_KEY {
                return argument("metadata key", format!("1 to {MAX_KEY} bytes"), key.len().to_string());
            }
            put_string(&mut out, key.as_bytes());
            put_value(&mut out, value);
        }
        let mut offset = 0u64;
        let mut names = HashSet::new();
        for tensor in &self.tensors {
            let NewTensor { name, shape, kind, data } = tensor;
            if name.is_empty() || name.len() > MAX_NAME {
                return argument(
                    &format!("name of tensor {name:?}"),
                    format!("1 to {MAX_NAME} bytes"),
                    name.len().to_string(),
                );
            }
            if !names.insert(name) {
                return argument("tensors", "each name once".into(), format!("{name} twice"));
            }
            if !(1..=4).contains(&shape.len()) {
                let expected = "1 to 4 dimensions".into();
                return argument(&format!("shape of tensor {name}"), expected, shape.len().to_string());
            }
            let size = tensor.size()?;
            if let Some(data) = data.filter(|data| data.len() as u64 != size) {
                return Err(tensor.wrong_size(size, data.len() as u64));
            }
            put_string(&mut out, name.as_bytes());
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
            out.extend(kind.0.to_le_bytes());
            out.extend(offset.to_le_bytes());
            offset = (offset + size).next_multiple_of(align as u64);
        }
        out.resize(out.len().next_multiple_of(align), 0);
        Ok(out)
    }

    /// The alignment that a reader will find in the metadata.
    fn align(&self) -> Result<usize> {
        let key = self.metadata.iter().find(|entry| entry.0 == "general.alignment");
        alignment(key.map(|entry| &entry.1))
    }
}

impl NewTensor<'_> {
    /// Bytes of its data, as the shape says.
    fn size(&self) -> Result<u64> {
        byte_size(&self.shape, self.kind).map_err(|got| Error::Argument {
            what: format!("tensor {}", self.name),
            expected: "a possible shape".into(),
            got,
        })
    }

    fn wrong_size(&self, size: u64, got: u64) -> Error {
        let expected = format!("{size} bytes for {} weights of {}", super::dims(&self.shape), self.kind.name());
        Error::Argument { what: format!("data of tensor {}", self.name), expected, got: got.to_string() }
    }
}

/// Counts what is written.
struct Counted<'a, W> {
    out: &'a mut W,
    count: u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let written = self.out.write(bytes)?;
        self.count += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}

fn put_string(out: &mut Vec<u8>, text: &[u8]) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text);
}

/// The number of the value's type, then the value.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    macro_rules! number {
        ($kind:literal, $number:expr) => {{
            out.extend(($kind as u32).to_le_bytes());
            out.extend($number.to_le_bytes());
        }};
    }
    match value {
        Value::U8(v) => number!(0, v),
        Value::I8(v) => number!(1, v),
        Value::U16(v) => number!(2, v),
        Value::I16(v) => number!(3, v),
        Value::U32(v) => number!(4, v),
        Value::I32(v) => number!(5, v),
        Value::F32(v) => number!(6, v),
        Value::Bool(v) => number!(7, (*v as u8)),
        Value::String(text) => {
            out.extend(8u32.to_le_bytes());
            put_string(out, text);
        }
        Value::Array(array) => {
            out.extend(9u32.to_le_bytes());
            put_array(out, array);
        }
        Value::U64(v) => number!(10, v),
        Value::I64(v) => number!(11, v),
        Value::F64(v) => number!(12, v),
    }
}

/// The number of the elements' type, their count, the elements.
fn put_array(out: &mut Vec<u8>, array: &Array) {
    let count = array.len() as u64;
    let mut head = |kind: u32| {
        out.extend(kind.to_le_bytes());
        out.extend(count.to_le_bytes());
    };
    macro_rules! numbers {
        ($kind:literal, $list:expr) => {{
            head($kind);
            $list.iter().for_each(|v| out.extend(v.to_le_bytes()));
        }};
    }
    match array {
        Array::U8(list) => numbers!(0, list),
        Array::I8(list) => numbers!(1, list),
        Array::U16(list) => numbers!(2, list),
        Array::I16(list) => numbers!(3, list),
        Array::U32(list) => numbers!(4, list),
        Array::I32(list) => numbers!(5, list),
        Array::F32(list) => numbers!(6, list),
        Array::Bool(list) => {
            head(7);
            out.extend(list.iter().map(|&v| v as u8));
        }
        Array::String(list) => {
            head(8);
            list.iter().for_each(|text| put_string(out, text));
        }
        Array::Array(list) => {
            head(9);
            list.iter().for_each(|inner| put_array(out, inner));
        }
        Array::U64(list) => numbers!(10, list),
        Array::I64(list) => numbers!(11, list),
        Array::F64(list) => numbers!(12, list),
    }
}

macro_rules! into_value {
    ($($type:ty => $make:expr,)*) => {
        $(impl From<$type> for Value {
            fn from(value: $type) -> Value {
                $make(value)
            }
        })*
    };
}
into_value! {
    u32 => Value::U32,
    i32 => Value::I32,
    u64 => Value::U64,
    f32 => Value::F32,
    bool => Value::Bool,
    &str => |text: &str| Value::String(text.into()),
    String => |text: String| Value::String(text.into()),
    Array => Value::Array,
    Vec<u32> => |list| Value::Array(Array::U32(list)),
    Vec<i32> => |list| Value::Array(Array::I32(list)),
    Vec<f32> => |list| Value::Array(Array::F32(list)),
    super::Strings => |list| Value::Array(Array::String(list)),
}
