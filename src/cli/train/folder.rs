//! A run's folder: which it is, and that no other run works in it.

use super::How;
use super::options::bad;
use super::settings::Recipe;
use crate::cli::Failure;
use peregrine::Error;
use std::fs::{File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// The run's folder: new, or that of the run to go on with. It is not made yet.
pub fn folder(recipe: Recipe, how: &How) -> Result<PathBuf, Failure> {
    let Some(folder) = how.out.clone() else {
        let numbered = |n: u32| Path::new("runs").join(format!("{}-{n}", recipe.name()));
        return Ok((1..).map(numbered).find(|folder| !folder.exists()).unwrap_or_else(|| numbered(0)));
    };
    let begun = folder.join("config.toml").exists();
    let full = std::fs::read_dir(&folder).is_ok_and(|mut files| files.next().is_some());
    if full && !how.resume {
        let holds = if begun { "which holds a run: --resume goes on with it" } else { "which holds other files" };
        return Err(bad("--out", "a new or empty folder", format!("{}, {holds}", folder.display())));
    }
    if !begun && how.resume {
        let lacks = if folder.exists() { "which has no config.toml" } else { "which does not exist" };
        return Err(bad("--resume", "the folder of a run", format!("{}, {lacks}", folder.display())));
    }
    if folder.exists() && !folder.is_dir() {
        return Err(bad("--out", "a new or empty folder", format!("{}, which is a file", folder.display())));
    }
    Ok(folder)
}

/// Makes the folder and keeps all other runs out of it for as long as the file is open.
pub fn claim(recipe: Recipe, how: &How, mut folder: PathBuf) -> Result<(PathBuf, File), Failure> {
    let failed = |path: &Path, source| {
        let source = Box::new(Error::Write { source });
        Error::InFile { path: path.into(), source }
    };
    if how.out.is_none() {
        std::fs::create_dir_all("runs").map_err(|source| failed(Path::new("runs"), source))?;
        loop {
            match std::fs::create_dir(&folder) {
                Ok(()) => break,
                Err(error) if error.kind() == ErrorKind::AlreadyExists => folder = self::folder(recipe, how)?,
                Err(error) => return Err(failed(&folder, error).into()),
            }
        }
    }
    std::fs::create_dir_all(&folder).map_err(|source| failed(&folder, source))?;
    let path = folder.join("lock");
    let lock = File::options().create(true).append(true).open(&path).map_err(|source| failed(&path, source))?;
    match lock.try_lock() {
        Err(TryLockError::WouldBlock) => {
            let got = format!("{}, where another run is going on", folder.display());
            Err(bad("--out", "a folder of its own", got))
        }
        Err(TryLockError::Error(error)) => {
            log::warn!("{} cannot be locked ({error}): let no other run use it", folder.display());
            Ok((folder, lock))
        }
        // somebody else may have begun here while this run was loading
        Ok(()) if !how.resume && folder.join("config.toml").exists() => {
            Err(bad("--out", "a new or empty folder", format!("{}, where another run began", folder.display())))
        }
        Ok(()) => Ok((folder, lock)),
    }
}
