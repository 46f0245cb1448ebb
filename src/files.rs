//! Files that are written whole, and hashes of what they hold.

use crate::error::{Error, Result};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

/// Writes a small file whole or not at all, whoever else writes it at the same time. Makes its folder where there is none.
pub fn replace(path: &Path, content: &[u8]) -> Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(|source| Error::Io { path: folder.into(), source })?;
    }
    let draft = format!(".{}.tmp", std::process::id());
    written(path, &draft, |out| out.write_all(content).map_err(|source| Error::Write { source }))
}

/// Writes a file whole or not at all: under a temporary name in its folder, then synced to the disk and renamed. Who reads it
/// meanwhile, or after a crash at any moment, finds the old file or the new one. One at a time may write it: the temporary
/// name is NAME.tmp always, so that no crash leaves another draft behind.
///
/// # Errors
/// [`Error::InFile`] with what `write` or the system says; the old file is then as it was.
pub fn replace_with(path: &Path, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    written(path, ".tmp", write)
}

/// `ending` makes the temporary name.
fn written(path: &Path, ending: &str, write: impl FnOnce(&mut BufWriter<File>) -> Result<()>) -> Result<()> {
    let failed = |source| Error::Write { source };
    let mut draft = path.as_os_str().to_owned();
    draft.push(ending);
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let whole = || -> Result<()> {
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
