//! Small files that are kept between runs.

use std::io;
use std::path::Path;

/// Writes a file whole or not at all: who reads it meanwhile, or after a crash, finds the old one or the new one. Makes
/// its folder where there is none.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension(format!("{}.tmp", std::process::id()));
    std::fs::write(&draft, content).and_then(|()| std::fs::rename(&draft, path)).inspect_err(|_| {
        let _ = std::fs::remove_file(&draft);
    })
}

/// FNV-1a: for names and against damage, not against malice. Unlike the standard library's it stays the same.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3))
}
