//! Models in several files: `PREFIX-00001-of-00003.gguf` and so on, as gguf-split writes them.

#[cfg(not(target_arch = "wasm32"))]
use super::read;
use super::{Bytes, Gguf, Header, Value};
use crate::error::{Error, Result};
#[cfg(not(target_arch = "wasm32"))]
use std::path::Path;

/// The format counts parts in 16 bits.
const MAX_PARTS: u64 = 65535;

/// What a file says of its place among the parts; None if it is whole.
pub(super) struct Place {
    /// From 0, below `count`.
    pub number: u64,
    pub count: u64,
}

impl Place {
    pub(super) fn of(header: &Header) -> Result<Option<Place>> {
        let number = |key: &str| {
            let value = header.keys.get(key).map(|&i| &header.metadata[i].1);
            let wrong = |value: &Value| Error::Key {
                key: key.into(),
                expected: "an unsigned integer".into(),
                got: value.kind(),
            };
            value.map(|value| value.as_u64().ok_or_else(|| wrong(value))).transpose()
        };
        let outside =
            |key: &str, expected: String, got: u64| Err(Error::Key { key: key.into(), expected, got: got.to_string() });
        let count = number("split.count")?.unwrap_or(1);
        if count <= 1 {
            return Ok(None);
        }
        if count > MAX_PARTS {
            return outside("split.count", format!("at most {MAX_PARTS} parts"), count);
        }
        let number = number("split.no")?.unwrap_or(0);
        if number >= count {
            return outside("split.no", format!("a number below split.count, {count}"), number);
        }
        Ok(Some(Place { number, count }))
    }
}

/// The end of a part's name.
#[cfg(not(target_arch = "wasm32"))]
fn suffix(number: u64, count: u64) -> String {
    format!("-{:05}-of-{count:05}.gguf", number + 1)
}

/// One file, or all parts of a split one in any order, that came without paths.
pub(super) fn join(files: Vec<(Bytes, Header)>) -> Result<Gguf> {
    let mut parts = Vec::new();
    for (bytes, header) in files {
        let place = Place::of(&header)?.unwrap_or(Place { number: 0, count: 1 });
        parts.push((place, bytes, header));
    }
    parts.sort_by_key(|(place, ..)| place.number);
    let Some(count) = parts.first().map(|(place, ..)| place.count) else {
        return Err(Error::Argument { what: "files".into(), expected: "one or more".into(), got: "none".into() });
    };
    if let Some((other, ..)) = parts.iter().find(|(place, ..)| place.count != count) {
        let what = format!("files of a model in {count} and of one in {}", other.count);
        return Err(Error::Unsupported { what, hint: "Give the parts of one model".into() });
    }
    if !parts.iter().map(|(place, ..)| place.number).eq(0..count) {
        let given: Vec<String> = parts.iter().map(|(place, ..)| (place.number + 1).to_string()).collect();
        let what = match &given[..] {
            [one] => format!("part {one} of a model in {count} files, given alone"),
            _ => format!("parts {} of a model in {count} files", given.join(", ")),
        };
        let hint = "Give every part once; by its path or link, the first part finds the others beside it".into();
        return Err(Error::Unsupported { what, hint });
    }
    let mut parts = parts.into_iter();
    let Some((_, bytes, header)) = parts.next() else { unreachable!("there is a first") };
    let mut gguf = Gguf::from_header(bytes, header)?;
    for (_, bytes, header) in parts {
        gguf.add_part(bytes, header.data_start, header.tensors)?;
    }
    complete(&gguf, count)?;
    Ok(gguf)
}

/// Whether all parts together hold as many tensors as the first says.
fn complete(gguf: &Gguf, count: u64) -> Result<()> {
    let wanted = gguf.get("split.tensors.count").and_then(Value::as_u64).unwrap_or(gguf.tensors.len() as u64);
    if count > 1 && wanted != gguf.tensors.len() as u64 {
        let got = format!("{} in all {count} parts", gguf.tensors.len());
        return Err(Error::Key { key: "split.tensors.count".into(), expected: wanted.to_string(), got });
    }
    Ok(())
}

/// Adds the tensors of parts 2 to `count` to those of the first, which lie beside it.
#[cfg(not(target_arch = "wasm32"))]
pub(super) fn open_others(gguf: &mut Gguf, first: &Path, place: &Place) -> Result<()> {
    let name = first.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let own = suffix(place.number, place.count);
    let Some(prefix) = name.strip_suffix(&own) else {
        return Err(Error::Unsupported {
            what: format!("split file name {name:?}: this is part {} of {}", place.number + 1, place.count),
            hint: format!(
                "Its name must end in {own} so that the other parts are found beside it; parts joined with cat do not load, join them with `llama-gguf-split --merge`"
            ),
        });
    };
    let path_of = |number: u64| first.with_file_name(format!("{prefix}{}", suffix(number, place.count)));
    if place.number != 0 {
        return Err(Error::Unsupported {
            what: format!("part {} of a model in {} files", place.number + 1, place.count),
            hint: format!("Give the first part, {}", path_of(0).display()),
        });
    }
    for number in 1..place.count {
        let path = path_of(number);
        add(gguf, &path, place, number).map_err(|error| error.in_file(path))?;
    }
    complete(gguf, place.count)
}

#[cfg(not(target_arch = "wasm32"))]
fn add(gguf: &mut Gguf, path: &Path, place: &Place, number: u64) -> Result<()> {
    let bytes = Bytes::open(path)?;
    let header = read::read(bytes.whole().unwrap_or_default())?;
    match Place::of(&header)? {
        Some(other) if other.number == number && other.count == place.count => {}
        other => {
            let got = other.map_or_else(|| "a whole file".into(), |o| format!("part {} of {}", o.number + 1, o.count));
            let expected = format!("part {} of {}", number + 1, place.count);
            return Err(Error::Key { key: "split.no".into(), expected, got });
        }
    }
    gguf.add_part(bytes, header.data_start, header.tensors)
}
