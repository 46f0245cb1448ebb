//! `fetch`: a GGUF file from the Hugging Face hub into the hub's ordinary cache. A download that was cut goes on where it
//! stopped: within the run a few times, and in the next run. The hub's client itself begins anew each time, so the bytes
//! are pulled here, through its range requests; it then finds the whole file in its place and links it.

use super::open::Context;
use super::{Failure, output};
use clap::Args;
use futures_util::StreamExt;
use hf_hub::repository::{HFRepository, RepoTreeEntry, RepoTypeModel};
use hf_hub::{HFClient, HFError};
use indicatif::ProgressBar;
use peregrine::Error;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How often a cut connection is taken up again without any progress before we give up.
const ATTEMPTS: u32 = 5;
/// A connection that is silent for this long is taken for a cut one.
const SILENCE: Duration = Duration::from_secs(60);

type Repo = HFRepository<RepoTypeModel>;

#[derive(Args)]
pub struct Fetch {
    /// The repository, as OWNER/NAME; HF_ENDPOINT names another hub, HF_TOKEN lets you in where one is asked for
    repo: String,
    /// The file in it; needed where there are several
    file: Option<String>,
}

impl Fetch {
    pub fn run(self) -> Result<(), Failure> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.fetch())
    }

    async fn fetch(self) -> Result<(), Failure> {
        let parts = self.repo.split_once('/').filter(|(owner, name)| is_name(owner) && is_name(name));
        let (owner, name) = parts.ok_or_else(|| {
            let (expected, got) = ("OWNER/NAME".into(), format!("{:?}", self.repo));
            Error::Argument { what: "REPO".into(), expected, got }
        })?;
        let client = HFClient::new()?;
        let repo = client.model(owner, name);
        let what = format!("cannot fetch from {} at {}", self.repo, client.endpoint());
        let outcome = async {
            let file = match self.file {
                Some(file) => file,
                None => only_gguf(&repo, &self.repo).await?,
            };
            let blobs = client.cache_dir().join(format!("models--{owner}--{name}")).join("blobs");
            let mut paths = Vec::new();
            for part in parts_of(&file) {
                paths.push(download(&repo, &blobs, &part).await?);
            }
            Ok(paths)
        };
        match outcome.await {
            // the first part of a split model is the one to open
            Ok(paths) => Ok(output::show(format!("{}\n", paths[0].display()))?),
            Err(failure) => {
                let failure: Failure = failure;
                let is_usage = matches!(failure.downcast_ref(), Some(Error::Argument { .. }));
                Err(if is_usage { failure } else { Context { what, source: failure }.into() })
            }
        }
    }
}

/// What the hub allows, and no path that leads elsewhere.
fn is_name(text: &str) -> bool {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    text.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '_') && text.chars().all(allowed)
}

/// The repository's GGUF file, if it has just one (a split model counts as its first part).
async fn only_gguf(repo: &Repo, name: &str) -> Result<String, Failure> {
    let mut files = Vec::new();
    let mut stream = std::pin::pin!(repo.list_tree().recursive(true).send()?);
    while let Some(entry) = stream.next().await {
        if let RepoTreeEntry::File { path, size, .. } = entry? {
            let later_part = path.contains("-of-") && !path.contains("-00001-of-");
            if path.to_lowercase().ends_with(".gguf") && !later_part {
                files.push((path, size));
            }
        }
    }
    files.sort();
    match &files[..] {
        [(path, _)] => Ok(path.clone()),
        [] => Err(Error::Unsupported {
            what: format!("{name} holds no .gguf file"),
            hint: "Look for a repository of the same model whose name ends in -GGUF".into(),
        }
        .into()),
        _ => {
            let line = |(path, size): &(String, u64)| format!("\n{:>10}  {path}", output::bytes(*size));
            let list: String = files.iter().map(line).collect();
            let got = format!("none; {name} has {}:{list}", files.len());
            Err(Error::Argument { what: "FILE".into(), expected: "the name of one file".into(), got }.into())
        }
    }
}

/// All files of a split model, or the one.
fn parts_of(file: &str) -> Vec<String> {
    let split = || {
        let (prefix, count) = file.strip_suffix(".gguf")?.split_once("-00001-of-")?;
        let n: u32 = count.parse().ok().filter(|n| (1..=99_999).contains(n))?;
        Some((1..=n).map(|i| format!("{prefix}-{i:05}-of-{count}.gguf")).collect())
    };
    split().unwrap_or_else(|| vec![file.to_string()])
}

/// Downloads what is missing of a file into the cache's place for it, checks it, and lets the hub's client link it.
async fn download(repo: &Repo, blobs: &Path, file: &str) -> Result<PathBuf, Failure> {
    let metadata = match repo.get_file_metadata().filepath(file).send().await {
        Ok(metadata) => metadata,
        Err(error @ HFError::Request { .. }) => {
            let cached = repo.download_file().filename(file).local_files_only(true).send().await;
            let path = cached.map_err(|_| error)?;
            log::warn!("the hub cannot be reached; this is the file from the cache");
            return Ok(path);
        }
        Err(error) => return Err(error.into()),
    };
    if !is_name(&metadata.etag) {
        return Err(invalid(format!("the hub names the content of {file} {:?}, which is no hash", metadata.etag)));
    }
    let blob = blobs.join(&metadata.etag);
    if !blob.exists() {
        std::fs::create_dir_all(blobs).map_err(|error| Context {
            what: format!("cannot write to the cache {}", blobs.display()),
            source: error.into(),
        })?;
        let part = blobs.join(format!("{}.peregrine-part", metadata.etag));
        output::tell(format!("{file}, {}", output::bytes(metadata.file_size)));
        let bar = output::byte_bar("fetching");
        let done = resume(repo, file, &part, &metadata.etag, metadata.file_size, &bar).await;
        bar.finish_and_clear();
        done?;
        std::fs::rename(&part, &blob)?;
    }
    Ok(repo.download_file().filename(file).send().await?)
}

/// Fills the part file up to `size` bytes and checks it against its hash.
async fn resume(repo: &Repo, file: &str, part: &Path, hash: &str, size: u64, bar: &ProgressBar) -> Result<(), Failure> {
    let mut out = File::options().read(true).append(true).create(true).open(part)?;
    if out.try_lock().is_err() {
        let text = format!("another process is fetching {file} (it holds {})", part.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, text).into());
    }
    // The hub names large files by their SHA-256, small ones by their git hash. Only the first can be checked here, so
    // only they are put together from pieces.
    let checked = hash.len() == 64;
    if !checked || out.metadata()?.len() > size {
        out.set_len(0)?;
    }
    bar.set_length(size);
    let mut failures = 0;
    while out.metadata()?.len() < size {
        let have = out.metadata()?.len();
        bar.set_position(have);
        let outcome = append(repo, file, &mut out, size, bar).await;
        let now = out.metadata()?.len();
        failures = if now > have { 0 } else { failures + 1 };
        match outcome {
            Ok(()) if now >= size => {}
            Err(error) if !is_cut(&error) => return Err(error.into()),
            outcome if failures >= ATTEMPTS => {
                if now > 0 && checked {
                    log::warn!("{} are kept; the same command goes on from there", output::bytes(now));
                }
                let early = || io::Error::new(io::ErrorKind::UnexpectedEof, "the server ends its answers early").into();
                return Err(outcome.err().map_or_else(early, Failure::from));
            }
            outcome => {
                let why = outcome.err().map_or_else(|| "the answer ended early".into(), |error| error.to_string());
                log::info!("the connection was lost at {} ({why}); it goes on", output::bytes(now));
                tokio::time::sleep(Duration::from_millis(100 << failures)).await;
                if !checked {
                    out.set_len(0)?;
                }
            }
        }
    }
    out.sync_all()?;
    if checked && sha256(part)? != hash {
        std::fs::remove_file(part)?;
        return Err(invalid(format!("the download of {file} does not have the SHA-256 {hash}; fetch it again")));
    }
    Ok(())
}

/// One request for what is missing.
async fn append(repo: &Repo, file: &str, out: &mut File, size: u64, bar: &ProgressBar) -> Result<(), HFError> {
    let have = out.metadata()?.len();
    let (_, stream) = repo.download_file_stream().filename(file).range(have..size).send().await?;
    let mut stream = std::pin::pin!(stream);
    let mut left = size - have;
    while let Ok(next) = tokio::time::timeout(SILENCE, stream.next()).await {
        let Some(bytes) = next else { break };
        let bytes = bytes?;
        let Some(after) = left.checked_sub(bytes.len() as u64) else {
            // More than was asked for: the server ignores ranges and sends all. Begin anew, which is then right.
            out.set_len(0)?;
            break;
        };
        left = after;
        out.write_all(&bytes)?;
        bar.inc(bytes.len() as u64);
    }
    Ok(())
}

/// Whether trying again may help: the connection was lost, or the server has trouble.
fn is_cut(error: &HFError) -> bool {
    match error {
        HFError::Request { .. } | HFError::Xet { .. } | HFError::RateLimited { .. } => true,
        HFError::Http { context } => context.status.is_server_error(),
        _ => false,
    }
}

fn sha256(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            return Ok(hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect());
        }
        hash.update(&buffer[..n]);
    }
}

fn invalid(text: String) -> Failure {
    io::Error::new(io::ErrorKind::InvalidData, text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_parts() {
        let names = [("Qwen", true), ("SmolLM2-135M_Instruct.GGUF", true), ("", false), ("..", false), ("a/b", false)];
        for (name, want) in names {
            assert_eq!(is_name(name), want, "{name:?}");
        }
        assert_eq!(parts_of("m.Q4_0.gguf"), ["m.Q4_0.gguf"]);
        assert_eq!(parts_of("m-00001-of-00002.gguf"), ["m-00001-of-00002.gguf", "m-00002-of-00002.gguf"]);
        assert_eq!(parts_of("m-00001-of-x.gguf"), ["m-00001-of-x.gguf"]);
        assert_eq!(parts_of("m-00001-of-00000.gguf"), ["m-00001-of-00000.gguf"]);
    }
}
