//! `fetch`: a GGUF file from the Hugging Face hub into the hub's ordinary cache. A download that was cut goes on where it
//! stopped: within the run a few times, and in the next run.

use super::{Failure, output};
use clap::Args;
use futures_util::StreamExt;
use hf_hub::repository::{HFRepository, RepoTreeEntry, RepoTypeModel};
use hf_hub::{HFClient, HFError};
use peregrine::Error;
use sha2::{Digest, Sha256};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

/// How often a cut connection is taken up again without any progress before we give up.
const ATTEMPTS: u32 = 5;

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
        let (owner, name) =
            self.repo.split_once('/').filter(|(owner, name)| !owner.is_empty() && !name.is_empty()).ok_or_else(
                || Error::Argument {
                    what: "REPO".into(),
                    expected: "OWNER/NAME".into(),
                    got: format!("{:?}", self.repo),
                },
            )?;
        let client = HFClient::new()?;
        let repo = client.model(owner, name);
        let file = match self.file {
            Some(file) => file,
            None => only_gguf(&repo, &self.repo).await?,
        };
        let mut first = None;
        for part in parts(&file) {
            let path = download(&client, &repo, owner, name, &part).await?;
            first.get_or_insert(path);
        }
        println!("{}", first.unwrap_or_default().display());
        Ok(())
    }
}

/// The repository's GGUF file, if it has just one (a split model counts as its first part).
async fn only_gguf(repo: &Repo, name: &str) -> Result<String, Failure> {
    let mut files = Vec::new();
    let stream = repo.list_tree().recursive(true).send()?;
    let mut stream = std::pin::pin!(stream);
    while let Some(entry) = stream.next().await {
        if let RepoTreeEntry::File { path, size, .. } = entry? {
            let later_part = path.contains("-of-") && !path.contains("-00001-of-");
            if path.to_lowercase().ends_with(".gguf") && !later_part {
                files.push((path, size));
            }
        }
    }
    match &files[..] {
        [(path, _)] => Ok(path.clone()),
        [] => Err(Error::Unsupported {
            what: format!("{name} holds no .gguf file"),
            hint: "Look for a repository of the same model whose name ends in -GGUF".into(),
        }
        .into()),
        _ => {
            let list: Vec<_> =
                files.iter().map(|(path, size)| format!("\n  {path} ({})", output::bytes(*size))).collect();
            let got = format!("none, and {name} has {}:{}", files.len(), list.concat());
            Err(Error::Argument { what: "FILE".into(), expected: "the name of one file".into(), got }.into())
        }
    }
}

/// All files of a split model, or the one.
fn parts(file: &str) -> Vec<String> {
    let split = || {
        let (prefix, count) = file.strip_suffix(".gguf")?.split_once("-00001-of-")?;
        let n: u32 = count.parse().ok()?;
        Some((1..=n).map(|i| format!("{prefix}-{i:05}-of-{count}.gguf")).collect())
    };
    split().unwrap_or_else(|| vec![file.to_string()])
}

/// Downloads what is missing of a file into the cache's place for it, checks it, and lets the hub's client link it.
async fn download(client: &HFClient, repo: &Repo, owner: &str, name: &str, file: &str) -> Result<PathBuf, Failure> {
    let metadata = repo.get_file_metadata().filepath(file).send().await?;
    let blobs = client.cache_dir().join(format!("models--{owner}--{name}")).join("blobs");
    let blob = blobs.join(&metadata.etag);
    if !blob.exists() {
        std::fs::create_dir_all(&blobs)?;
        let part = blobs.join(format!("{}.peregrine-part", metadata.etag));
        let bar = output::byte_bar(file);
        bar.set_length(metadata.file_size);
        resume(repo, file, &part, metadata.file_size, &bar).await?;
        bar.finish_and_clear();
        check(&part, &metadata.etag)?;
        std::fs::rename(&part, &blob)?;
    }
    Ok(repo.download_file().filename(file).send().await?)
}

async fn resume(repo: &Repo, file: &str, part: &Path, size: u64, bar: &indicatif::ProgressBar) -> Result<(), Failure> {
    let mut out = std::fs::OpenOptions::new().create(true).append(true).open(part)?;
    let mut failures = 0;
    loop {
        let have = out.metadata()?.len();
        bar.set_position(have);
        if have == size {
            out.sync_all()?;
            return Ok(());
        }
        if have > size {
            out.set_len(0)?; // not ours: begin anew
            continue;
        }
        match append(repo, file, &mut out, have, size, bar).await {
            Ok(()) if out.metadata()?.len() > have => failures = 0,
            Ok(()) => failures += 1,
            Err(error) => {
                failures = if out.metadata()?.len() > have { 1 } else { failures + 1 };
                if failures >= ATTEMPTS {
                    let kept = output::bytes(out.metadata()?.len());
                    log::warn!("{kept} of {file} are kept; the same command goes on from there");
                    return Err(error.into());
                }
                log::info!("the connection was lost ({error}); trying again");
                tokio::time::sleep(std::time::Duration::from_millis(200 << failures)).await;
            }
        }
        if failures >= ATTEMPTS {
            let message = format!("the server ends the answer early, {ATTEMPTS} times in a row");
            return Err(std::io::Error::new(std::io::ErrorKind::UnexpectedEof, message).into());
        }
    }
}

/// One request for what is missing.
async fn append(
    repo: &Repo,
    file: &str,
    out: &mut std::fs::File,
    have: u64,
    size: u64,
    bar: &indicatif::ProgressBar,
) -> Result<(), HFError> {
    let (_, stream) = repo.download_file_stream().filename(file).range(have..size).send().await?;
    let mut stream = std::pin::pin!(stream);
    let mut left = size - have;
    while let Some(bytes) = stream.next().await {
        let bytes = bytes?;
        let Some(after) = left.checked_sub(bytes.len() as u64) else {
            out.set_len(0)?; // the server ignores ranges and sends all: take it from the start, next time
            return Ok(());
        };
        left = after;
        out.write_all(&bytes)?;
        bar.inc(bytes.len() as u64);
    }
    Ok(())
}

/// The hub names large files by their SHA-256: a download put together from pieces is checked against it.
fn check(part: &Path, etag: &str) -> Result<(), Failure> {
    if etag.len() != 64 {
        return Ok(()); // a small file, named by its git hash
    }
    let mut file = std::fs::File::open(part)?;
    file.rewind()?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        let n = file.read(&mut buffer)?;
        if n == 0 {
            break;
        }
        hash.update(&buffer[..n]);
    }
    let got: String = hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
    if got == etag {
        return Ok(());
    }
    std::fs::remove_file(part)?;
    let message = format!("the download is damaged (SHA-256 {got}, expected {etag}) and was removed; fetch it again");
    Err(std::io::Error::new(std::io::ErrorKind::InvalidData, message).into())
}
