//! `peregrine fetch` against a hub of our own, on this machine, which has all the troubles that a network can have.
#![cfg(feature = "fetch")]

mod common;

use common::Table;
use serde_json::json;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

/// How the hub answers the requests for a file's bytes.
#[derive(Clone, Copy, PartialEq)]
enum Trouble {
    None,
    /// The first answer ends after a third of the file.
    CutOnce,
    /// Every answer ends after a third of the file at most.
    CutAlways,
    /// A third of the file, and never a byte more.
    Dies,
    /// The first is cut, and ranges are ignored.
    IgnoresRanges,
    /// The last byte is another.
    Damaged,
    /// The server has trouble of its own.
    Unavailable,
}

/// A hub with one repository, someone/tiny-GGUF.
struct Hub {
    address: String,
    /// "get /path range", one line a request.
    log: Arc<Mutex<Vec<String>>>,
}

impl Hub {
    fn new(files: &[(&str, &[u8])], trouble: Trouble) -> Hub {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let log = Arc::new(Mutex::new(Vec::new()));
        let files: BTreeMap<String, Vec<u8>> =
            files.iter().map(|(name, content)| (name.to_string(), content.to_vec())).collect();
        let shared = log.clone();
        std::thread::spawn(move || {
            let mut downloads = 0;
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &files, trouble, &shared, &mut downloads); // the other side may be gone
            }
        });
        Hub { address, log }
    }

    /// Runs `peregrine fetch` with this cache.
    fn fetch(&self, cache: &Cache, args: &[&str]) -> Output {
        fetch(&self.address, cache, args)
    }

    /// Where each request for bytes began.
    fn downloads(&self) -> Vec<String> {
        let log = self.log.lock().unwrap();
        let downloads = log.iter().filter(|line| line.starts_with("get ") && line.contains("/resolve/"));
        downloads.map(|line| line.rsplit(' ').next().unwrap().to_string()).collect()
    }
}

fn answer(
    mut stream: TcpStream,
    files: &BTreeMap<String, Vec<u8>>,
    trouble: Trouble,
    log: &Mutex<Vec<String>>,
    downloads: &mut u32,
) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut request, mut length) = (Vec::new(), 0);
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        if let Some(n) = line.to_lowercase().strip_prefix("content-length:") {
            length = n.trim().parse().unwrap_or(0);
        }
        request.push(line.trim().to_string());
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let first = request.first().cloned().unwrap_or_default();
    let mut words = first.split(' ');
    let (method, path) = (words.next().unwrap_or("").to_lowercase(), words.next().unwrap_or("").to_string());
    let header = |name: &str| {
        let line = request.iter().find(|line| line.to_lowercase().starts_with(name))?;
        Some(line[name.len()..].trim().to_string())
    };
    let range = header("range: bytes=").unwrap_or_default();
    log.lock().unwrap().push(format!("{method} {path} {range}"));

    let mut reply = |status: &str, headers: &str, length: usize, body: &[u8]| {
        let head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n");
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)
    };
    if path.contains("/tree/") && path.contains("someone/tiny-GGUF") {
        let entry = |(path, content): (&String, &Vec<u8>)| json!({"type": "file", "oid": COMMIT, "size": content.len(), "path": path});
        let body = files.iter().map(entry).collect::<serde_json::Value>().to_string();
        return reply("200 OK", "content-type: application/json\r\n", body.len(), body.as_bytes());
    }
    let name =
        path.split("/someone/tiny-GGUF/resolve/main/").nth(1).or(path.split("/someone/tiny-GGUF/resolve/").nth(1));
    let Some(content) = name.and_then(|name| files.get(name)) else {
        let code = if path.contains("someone/tiny-GGUF") { "EntryNotFound" } else { "RepoNotFound" };
        return reply("404 Not Found", &format!("x-error-code: {code}\r\n"), 0, b"");
    };
    // a small file has its git hash, a large one its SHA-256
    let hash = if content.len() < 1000 { COMMIT.to_string() } else { sha256(content) };
    let headers = format!("etag: \"{hash}\"\r\nx-repo-commit: {COMMIT}\r\nx-linked-size: {}\r\n", content.len());
    if method == "head" {
        return reply("200 OK", &headers, content.len(), b"");
    }
    *downloads += 1;
    let mut content = content.clone();
    if trouble == Trouble::Damaged {
        *content.last_mut().unwrap() ^= 1;
    }
    let wanted: usize = range.split('-').next().and_then(|start| start.parse().ok()).unwrap_or(0);
    let start = if trouble == Trouble::IgnoresRanges { 0 } else { wanted };
    let (body, third) = (&content[start..], content.len() / 3);
    let sent = match trouble {
        Trouble::CutOnce | Trouble::IgnoresRanges if *downloads == 1 => third,
        Trouble::CutAlways => third.min(body.len()),
        Trouble::Dies => third.saturating_sub(start),
        _ => body.len(),
    };
    match trouble {
        Trouble::Unavailable => reply("503 Service Unavailable", "", 0, b""),
        Trouble::IgnoresRanges => reply("200 OK", &headers, body.len(), &body[..sent]),
        _ => {
            let headers = format!("{headers}content-range: bytes {start}-{}/{}\r\n", content.len() - 1, content.len());
            reply("206 Partial Content", &headers, body.len(), &body[..sent])
        }
    }
}

fn sha256(content: &[u8]) -> String {
    Sha256::digest(content).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A cache folder with a space in its name; gone when dropped.
struct Cache(PathBuf);

impl Cache {
    fn new(name: &str) -> Cache {
        let folder = std::env::temp_dir().join(format!("peregrine hub {} {name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder); // of an earlier process with our number
        Cache(folder)
    }

    /// The files of the hub's blobs folder.
    fn blobs(&self) -> Vec<String> {
        let folder = self.0.join("hub/models--someone--tiny-GGUF/blobs");
        let names = std::fs::read_dir(folder).into_iter().flatten();
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

impl Drop for Cache {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn fetch(endpoint: &str, cache: &Cache, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peregrine"));
    command.arg("fetch").args(args).stdin(Stdio::null()).env("HF_ENDPOINT", endpoint).env("HF_HOME", &cache.0);
    for name in ["HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "http_proxy", "HTTP_PROXY", "all_proxy"] {
        command.env_remove(name);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The built-in model's file: large enough that the hub cuts it in the middle of its bytes.
fn model() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tales-2m.Q8_0.gguf")).unwrap()
}

/// The path that was printed holds these bytes.
fn arrived(out: &Output, content: &[u8]) -> Result<(), String> {
    if !out.status.success() {
        return Err(text(&out.stderr));
    }
    let path = text(&out.stdout);
    match std::fs::read(path.trim_end_matches('\n')) {
        Ok(got) if got == content => Ok(()),
        Ok(got) => Err(format!("{} bytes of {} in {path}", got.len(), content.len())),
        Err(error) => Err(format!("{path:?}: {error}")),
    }
}

#[test]
fn downloads_arrive_whole() {
    let content = model();
    let third = content.len() / 3;
    let end = content.len() - 1;
    let from = |start: usize| format!("{start}-{end}");
    let mut table = Table::new("downloads");
    for (name, trouble, requests) in [
        ("whole", Trouble::None, vec![from(0)]),
        ("cut once", Trouble::CutOnce, vec![from(0), from(third)]),
        ("cut always", Trouble::CutAlways, vec![from(0), from(third), from(2 * third), from(3 * third)]),
        ("ranges are ignored", Trouble::IgnoresRanges, vec![from(0), from(third), from(0)]),
    ] {
        let (hub, cache) = (Hub::new(&[("tiny.gguf", &content), ("README.md", b"#")], trouble), Cache::new(name));
        let out = hub.fetch(&cache, &["someone/tiny-GGUF"]);
        let requests: Vec<_> =
            requests.into_iter().filter(|range| !range.starts_with(&format!("{}-", end + 1))).collect();
        let outcome = arrived(&out, &content).and_then(|()| match hub.downloads() == requests {
            true if cache.blobs() == [sha256(&content)] => Ok(()),
            true => Err(format!("the cache holds {:?}", cache.blobs())),
            false => Err(format!("asked for {:?}, expected {requests:?}", hub.downloads())),
        });
        table.row(name, outcome);
        // again: from the cache, without a byte
        let (again, asked) = (hub.fetch(&cache, &["someone/tiny-GGUF", "tiny.gguf"]), hub.downloads().len());
        let outcome = arrived(&again, &content);
        table.row(&format!("{name}, again"), if asked == requests.len() { outcome } else { Err(format!("{asked}")) });
        if trouble == Trouble::None {
            let alone = fetch("http://127.0.0.1:1", &cache, &["someone/tiny-GGUF", "tiny.gguf"]);
            let told = text(&alone.stderr).contains("cannot be reached");
            let outcome = arrived(&alone, &content);
            table.row("the hub cannot be reached", if told { outcome } else { Err(text(&alone.stderr)) });
        }
    }
    table.finish();
}

#[test]
fn the_next_run_goes_on() {
    let content = model();
    let third = content.len() / 3;
    let cache = Cache::new("next run");
    let dying = Hub::new(&[("tiny.gguf", &content)], Trouble::Dies);
    let out = dying.fetch(&cache, &["someone/tiny-GGUF", "tiny.gguf"]);
    let stderr = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("error: cannot fetch") && stderr.contains("are kept"), "{stderr}");
    assert_eq!(cache.blobs(), [format!("{}.peregrine-part", sha256(&content))]);

    let healthy = Hub::new(&[("tiny.gguf", &content)], Trouble::None);
    let out = healthy.fetch(&cache, &["someone/tiny-GGUF", "tiny.gguf"]);
    arrived(&out, &content).unwrap();
    assert_eq!(healthy.downloads(), [format!("{third}-{}", content.len() - 1)], "it goes on from the third");
}

#[test]
fn all_parts_of_a_split_model() {
    let (one, two) = (vec![1; 3000], vec![2; 5000]);
    let files: [(&str, &[u8]); 2] = [("q/m-00001-of-00002.gguf", &one), ("q/m-00002-of-00002.gguf", &two)];
    let (hub, cache) = (Hub::new(&files, Trouble::None), Cache::new("split"));
    let out = hub.fetch(&cache, &["someone/tiny-GGUF"]);
    arrived(&out, &one).unwrap();
    let first = PathBuf::from(text(&out.stdout).trim());
    assert_eq!(std::fs::read(first.with_file_name("m-00002-of-00002.gguf")).unwrap(), two, "beside the first");
}

#[test]
fn a_small_file_that_is_cut_begins_anew() {
    let content = vec![7; 900];
    let (hub, cache) = (Hub::new(&[("s.gguf", &content)], Trouble::CutOnce), Cache::new("small"));
    arrived(&hub.fetch(&cache, &["someone/tiny-GGUF"]), &content).unwrap();
    assert_eq!(hub.downloads(), ["0-899", "0-899"], "its hash cannot be checked");
}

#[test]
fn failures_are_told() {
    let content = model();
    let small = [9; 2000];
    let mut table = Table::new("failures");
    let several: [(&str, &[u8]); 3] = [("b.Q4_0.gguf", &small), ("a.Q8_0.gguf", &small), ("x.txt", b"x")];
    for (name, files, trouble, args, code, words) in [
        (
            "damaged",
            &[("tiny.gguf", &content[..])][..],
            Trouble::Damaged,
            &["someone/tiny-GGUF"][..],
            1,
            &["SHA-256", "fetch it again"][..],
        ),
        ("unavailable", &[("tiny.gguf", &content)], Trouble::Unavailable, &["someone/tiny-GGUF"], 1, &["503"]),
        (
            "several",
            &several,
            Trouble::None,
            &["someone/tiny-GGUF"],
            2,
            &["has 2:", "2.0 kB  a.Q8_0.gguf", "b.Q4_0.gguf"],
        ),
        ("none", &[("x.txt", b"x")], Trouble::None, &["someone/tiny-GGUF"], 1, &["no .gguf file"]),
        ("no such file", &several, Trouble::None, &["someone/tiny-GGUF", "c.gguf"], 1, &["c.gguf", "not found"]),
        ("no such repository", &several, Trouble::None, &["someone/else"], 1, &["cannot fetch from someone/else"]),
        ("no owner", &several, Trouble::None, &["tiny-GGUF"], 2, &["OWNER/NAME", "tiny-GGUF"]),
        ("a path", &several, Trouble::None, &["../tiny"], 2, &["OWNER/NAME"]),
        ("a deep path", &several, Trouble::None, &["a/b/c"], 2, &["OWNER/NAME"]),
    ] {
        let (hub, cache) = (Hub::new(files, trouble), Cache::new(name));
        let out = hub.fetch(&cache, args);
        let stderr = text(&out.stderr);
        let told = words.iter().all(|word| stderr.contains(word)) && !stderr.contains("panicked");
        let outcome = if out.status.code() == Some(code) && told { Ok(()) } else { Err(stderr) };
        table.row(name, outcome);
        if name == "damaged" {
            table.row(
                "nothing of it stays",
                if cache.blobs().is_empty() { Ok(()) } else { Err(cache.blobs().concat()) },
            );
        }
    }
    let cache = Cache::new("nobody there");
    let out = fetch("http://127.0.0.1:1", &cache, &["someone/tiny-GGUF"]);
    let stderr = text(&out.stderr);
    let told =
        out.status.code() == Some(1) && stderr.contains("cannot fetch from someone/tiny-GGUF at http://127.0.0.1:1");
    table.row("nobody there", if told { Ok(()) } else { Err(stderr) });
    table.finish();
}
