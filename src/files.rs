//! Small files that are kept between runs.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{self, BufWriter, Write};
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

/// Writes a large file whole or not at all: under a temporary name in its folder, which is made where there is none, then
/// synced to the disk and renamed. After a crash at any moment there is the old file or the new one.
///
/// # Errors
/// [`Error::InFile`] with what `write` or the system says; the old file is then as it was.
pub fn replace_with(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let failed = |source| Error::Write { source };
    let mut draft = path.as_os_str().to_owned();
    draft.push(".tmp");
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let whole = || -> Result<()> {
        folder.map_or(Ok(()), std::fs::create_dir_all).map_err(failed)?;
        let mut out = BufWriter::with_capacity(1 << 20, File::create(&draft).map_err(failed)?);
        write(&mut out)?;
        out.flush().map_err(failed)?;
        out.get_ref().sync_all().map_err(failed)?;
        std::fs::rename(&draft, path).map_err(failed)?;
        // the rename itself is on the disk when the folder is; not every system lets a folder be synced
        if let Ok(folder) = File::open(folder.unwrap_or(Path::new("."))) {
            let _ = folder.sync_all();
        }
        Ok(())
    };
    whole().map_err(|error| {
        let _ = std::fs::remove_file(&draft);
        error.in_file(path)
    })
}

/// FNV-1a: for names and against damage, not against malice. Unlike the standard library's it stays the same.
pub fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3))
}
