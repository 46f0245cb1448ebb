//! Recognises what is not a GGUF file of this byte order and version, and names it.

use crate::error::{Error, Result};

/// How much of a text file is searched for what tells its kind.
const TEXT_HEAD: usize = 512;

/// Passes on files that begin with GGUF's magic; names what else was given.
pub(super) fn check(bytes: &[u8]) -> Result<()> {
    if bytes.starts_with(b"GGUF") {
        return match bytes.get(4..8) {
            None => Err(Error::gguf(bytes.len() as u64, "truncated header: the file ends before the version")),
            Some(_) => Ok(()),
        };
    }
    let (found, hint) = name(bytes);
    Err(Error::NotGguf { found, hint: hint.into() })
}

/// Why a version is refused.
pub(super) fn version_error(version: u32) -> Error {
    match (version, version.swap_bytes()) {
        (1, _) => Error::Unsupported {
            what: "GGUF version 1, of August 2023".into(),
            hint: "Convert the original model again; versions 2 and 3 are read".into(),
        },
        (_, 1..=3) => Error::Unsupported {
            what: format!("a big-endian GGUF file (version {} with its bytes swapped)", version.swap_bytes()),
            hint: "Get the little-endian file, or convert it (gguf-py's gguf_convert_endian)".into(),
        },
        _ => Error::gguf(4, format!("GGUF version {version} is unknown; versions 2 and 3 are supported")),
    }
}

fn name(bytes: &[u8]) -> (String, &'static str) {
    const CONVERT: &str =
        "Convert the model to GGUF (llama.cpp's convert_hf_to_gguf.py), or download a .gguf file of it";
    const OLD: &str =
        "Files of before August 2023 are not read; convert the original model again, or download a .gguf file of it";
    let found = |text: &str| text.to_string();
    let magic = |expected: &[u8]| bytes.starts_with(expected);
    if bytes.is_empty() {
        return (found("an empty file"), "The download has not begun or has failed; get it again");
    }
    if magic(b"FUGG") {
        return (found("a GGUF file with swapped bytes"), "Get the little-endian file");
    }
    if [&b"lmgg"[..], b"fmgg", b"tjgg", b"algg", b"GGML", b"GGMF", b"GGJT", b"GGLA"].iter().any(|old| magic(old)) {
        return (found("a GGML file of the kind before GGUF"), OLD);
    }
    if magic(b"version https://git-lfs") {
        return (
            found("a Git LFS pointer, not the model itself"),
            "Run `git lfs pull` in the repository, or download the file",
        );
    }
    if magic(b"PK\x03\x04") {
        return (found("a zip archive, probably a PyTorch model (.pth, .pt, .bin)"), CONVERT);
    }
    if magic(b"\x80\x02") || magic(b"\x80\x04") {
        return (found("a Python pickle, probably an old PyTorch model"), CONVERT);
    }
    if magic(b"\x1f\x8b") || magic(b"\x28\xb5\x2f\xfd") || magic(b"\xfd7zXZ") || magic(b"BZh") {
        return (found("a compressed file"), "Decompress it first");
    }
    if magic(b"\x89HDF") {
        return (found("an HDF5 file, probably a Keras model"), CONVERT);
    }
    // safetensors: the length of a JSON header, then the header
    let header = bytes.first_chunk().map(|length| u64::from_le_bytes(*length));
    if header.is_some_and(|length| length < 1 << 32) && bytes.get(8) == Some(&b'{') {
        return (found("a safetensors file"), CONVERT);
    }
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(TEXT_HEAD)]).trim_start().to_lowercase();
    if head.starts_with("<!doctype html") || head.starts_with("<html") || head.contains("<head") {
        return (
            found("an HTML page"),
            "A link to the page of a file was downloaded; use the link of the file itself (/resolve/ instead of /blob/)",
        );
    }
    if head.starts_with('{') || head.starts_with('[') {
        return (found("a JSON text"), "Give the .gguf file itself");
    }
    if bytes.iter().take(TEXT_HEAD).all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) {
        return (found("a text file"), "Give a .gguf file");
    }
    if bytes.iter().take(TEXT_HEAD).all(|&byte| byte == 0) {
        return (found("a file of zeros"), "The download is incomplete; get it again");
    }
    let first: Vec<String> = bytes.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    (format!("a file of unknown kind (it begins with {})", first.join(" ")), "Give a .gguf file")
}
