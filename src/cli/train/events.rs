//! `events.jsonl`: what happened in a run, one JSON object a line, appended. The first is `run_start`, the last `run_end`; a
//! run that was stopped or killed and taken up again has a `run_resume` between, after the `run_end` if it had one. Readers
//! skip kinds and keys that they do not know.

use peregrine::Error;
use serde_json::{Value, json};
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

pub struct Events {
    file: File,
    path: PathBuf,
}

impl Events {
    /// Opens the file to append to it. What a killed run left of a line is taken away.
    pub fn open(path: &Path) -> peregrine::Result<Events> {
        let io = |source| Error::Io { path: path.into(), source };
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io)?;
        let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |last| last + 1);
        if whole < bytes.len() {
            file.set_len(whole as u64).map_err(io)?;
        }
        file.seek(SeekFrom::End(0)).map_err(io)?;
        Ok(Events { file, path: path.into() })
    }

    /// Whether nothing was told yet.
    pub fn is_new(&self) -> bool {
        self.file.metadata().is_ok_and(|file| file.len() == 0)
    }

    /// Appends one event: the kind and the time (seconds since 1970), then the fields.
    pub fn add(&mut self, kind: &str, fields: Value) -> peregrine::Result<()> {
        let time = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64();
        let mut event = json!({ "event": kind, "time": (time * 1e3).round() / 1e3 });
        if let (Some(event), Value::Object(fields)) = (event.as_object_mut(), fields) {
            event.extend(fields);
        }
        // one write, so that no line is half there
        let line = format!("{event}\n");
        self.file
            .write_all(line.as_bytes())
            .map_err(|source| Error::Write { source })
            .map_err(|source| Error::InFile { path: self.path.clone(), source: Box::new(source) })
    }
}

/// (step, loss) in order.
pub type Curve = Vec<(u64, f64)>;

/// The losses that earlier parts of the run told, up to a step: (of training, of validation).
pub fn losses(path: &Path, before: u64) -> (Curve, Curve) {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let (mut training, mut validation) = (Curve::new(), Curve::new());
    for event in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let point = (event["step"].as_u64(), event["loss"].as_f64());
        let (Some(step), Some(loss)) = point else { continue };
        let list = match event["event"].as_str() {
            Some("step") if step < before => &mut training,
            Some("validation") if step <= before => &mut validation,
            _ => continue,
        };
        // a step that was taken again after a kill counts once
        match list.binary_search_by_key(&step, |point: &(u64, f64)| point.0) {
            Ok(i) => list[i].1 = loss,
            Err(i) => list.insert(i, (step, loss)),
        }
    }
    (training, validation)
}
