//! JSON text as Python's json.dumps writes it: models were trained on its spaces, escapes and numbers.

use minijinja::value::ValueKind;
use minijinja::{Error, ErrorKind, Value};

/// The arguments of json.dumps.
pub struct Style {
    pub ensure_ascii: bool,
    /// One level of indentation; None writes one line.
    pub indent: Option<String>,
    pub item_separator: String,
    pub key_separator: String,
    pub sort_keys: bool,
}

/// # Errors
/// A value that has no JSON: undefined, a function, or something too deeply nested.
pub fn dumps(value: &Value, style: &Style) -> Result<String, Error> {
    let mut out = String::new();
    write(value, style, 0, &mut out)?;
    Ok(out)
}

/// Deeper values are an error, before the stack ends.
const MAX_DEPTH: usize = 200;

fn write(value: &Value, style: &Style, depth: usize, out: &mut String) -> Result<(), Error> {
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::BadSerialization, format!("more than {MAX_DEPTH} levels for JSON")));
    }
    match value.kind() {
        ValueKind::Map => {
            let mut entries = Vec::new();
            for key in value.try_iter()? {
                entries.push((key_text(&key)?, value.get_item(&key)?));
            }
            if style.sort_keys {
                entries.sort_by(|a, b| a.0.cmp(&b.0));
            }
            list(entries, "{}", style, depth, out, |(key, value), out| {
                quote(key, style.ensure_ascii, out);
                *out += &style.key_separator;
                write(value, style, depth + 1, out)
            })
        }
        ValueKind::Seq | ValueKind::Iterable => {
            let items: Vec<Value> = value.try_iter()?.collect();
            list(items, "[]", style, depth, out, |item, out| write(item, style, depth + 1, out))
        }
        ValueKind::String => {
            quote(value.as_str().unwrap_or_default(), style.ensure_ascii, out);
            Ok(())
        }
        _ => {
            *out += &scalar(value)?;
            Ok(())
        }
    }
}

fn list<T>(
    items: Vec<T>,
    brackets: &str,
    style: &Style,
    depth: usize,
    out: &mut String,
    write_item: impl Fn(&T, &mut String) -> Result<(), Error>,
) -> Result<(), Error> {
    let line = |depth: usize, out: &mut String| {
        if let Some(indent) = &style.indent {
            out.push('\n');
            *out += &indent.repeat(depth);
        }
    };
    *out += &brackets[..1];
    for (i, item) in items.iter().enumerate() {
        if i > 0 {
            *out += &style.item_separator;
        }
        line(depth + 1, out);
        write_item(item, out)?;
    }
    if !items.is_empty() {
        line(depth, out);
    }
    *out += &brackets[1..];
    Ok(())
}

/// Python writes keys that are numbers, bools or None as the text of their JSON.
fn key_text(key: &Value) -> Result<String, Error> {
    key.as_str().map_or_else(|| scalar(key), |text| Ok(text.to_string()))
}

fn scalar(value: &Value) -> Result<String, Error> {
    Ok(match value.kind() {
        ValueKind::None => "null".into(),
        ValueKind::Bool => if value.is_true() { "true" } else { "false" }.into(),
        ValueKind::Number if value.is_integer() => value.to_string(),
        ValueKind::Number => float(f64::try_from(value.clone())?),
        kind => return Err(Error::new(ErrorKind::BadSerialization, format!("{kind} has no JSON"))),
    })
}

/// Python's repr: the shortest digits that give the number back (Rust has the same), with an exponent below 1e-4 and
/// from 1e16.
fn float(x: f64) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    if x != 0.0 && !(1e-4..1e16).contains(&x.abs()) {
        let text = format!("{x:e}");
        let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let (sign, exponent) = exponent.strip_prefix('-').map_or(("+", exponent), |exponent| ("-", exponent));
        return format!("{digits}e{sign}{exponent:0>2}");
    }
    format!("{x:?}")
}

fn quote(text: &str, ensure_ascii: bool, out: &mut String) {
    out.push('"');
    *out += &escape(text, ensure_ascii);
    out.push('"');
}

/// What stands between the quotes of a JSON string.
pub fn escape(text: &str, ensure_ascii: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for char in text.chars() {
        match char {
            '"' => out += "\\\"",
            '\\' => out += "\\\\",
            '\n' => out += "\\n",
            '\r' => out += "\\r",
            '\t' => out += "\\t",
            '\u{8}' => out += "\\b",
            '\u{c}' => out += "\\f",
            '\0'..='\u{1f}' => out += &format!("\\u{:04x}", char as u32),
            '\u{7f}'.. if ensure_ascii => {
                for unit in char.encode_utf16(&mut [0; 2]) {
                    out += &format!("\\u{unit:04x}");
                }
            }
            _ => out.push(char),
        }
    }
    out
}
