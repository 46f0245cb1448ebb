//! What is kept between runs, in the user's cache folder: compiled pipelines (by the library) and tunings (here).

use peregrine::tune::{Trial, candidates, shapes};
use peregrine::{Gguf, Gpu, Profile, files};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

/// PEREGRINE_CACHE_DIR, else `peregrine` in the place that the system has for such files.
pub fn folder() -> Option<PathBuf> {
    let folder = |name: &str| std::env::var_os(name).filter(|folder| !folder.is_empty()).map(PathBuf::from);
    if let Some(ours) = folder("PEREGRINE_CACHE_DIR") {
        return Some(ours);
    }
    let home = |below: &str| Some(folder("HOME")?.join(below));
    let caches = match std::env::consts::OS {
        "windows" => folder("LOCALAPPDATA"),
        "macos" => home("Library/Caches"),
        _ => folder("XDG_CACHE_HOME").or_else(|| home(".cache")),
    };
    Some(caches?.join("peregrine"))
}

/// The file of a model's tuning on a device.
pub struct TuningFile {
    path: PathBuf,
    /// What it must be of: a new driver, or a new version of ours, may be fast in another way.
    of: Value,
}

impl TuningFile {
    pub fn new(folder: &Path, gpu: &Gpu, gguf: &Gguf) -> TuningFile {
        let (card, shapes) = (gpu.card(), format!("{:016x}", shapes(gguf)));
        let path = folder.join(format!("tune-{}-{shapes}.json", card.id()));
        let of = json!({
            "version": env!("CARGO_PKG_VERSION"),
            "adapter": card.name,
            "backend": format!("{:?}", card.backend),
            "driver": card.driver,
            "shapes": shapes,
        });
        TuningFile { path, of }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The profile that it holds. None if there is no such file, or if it is damaged or of another driver: that is told
    /// with -v.
    pub fn read(&self, gpu: &Gpu) -> Option<Profile> {
        let text = std::fs::read(&self.path).ok()?;
        let kept: Value = serde_json::from_slice(&text).unwrap_or_default();
        let profile = (kept["of"] == self.of).then(|| profile_of(&kept["profile"], gpu)).flatten();
        match profile {
            Some(profile) => log::info!("tuned: {} (from {})", described(profile), self.path.display()),
            None => log::info!("{} is damaged or of another driver: not used", self.path.display()),
        }
        profile
    }

    pub fn write(&self, best: &Trial) -> peregrine::Result<()> {
        let text = json!({"of": self.of, "profile": object(best.profile), "prompt": best.prompt,
                          "prefill_tps": best.prefill, "decode_tps": best.decode});
        files::replace(&self.path, format!("{text:#}\n").as_bytes())
    }
}

/// A profile as JSON.
pub fn object(profile: Profile) -> Value {
    let Profile { lanes, subgroups, eights, int8, matrix, chunk } = profile;
    json!({"lanes": lanes, "subgroups": subgroups, "eights": eights, "int8": int8, "matrix": matrix.is_some(),
           "chunk": chunk})
}

/// None if a field is missing, or if this device cannot run such a profile.
fn profile_of(object: &Value, gpu: &Gpu) -> Option<Profile> {
    let (own, flag) = (gpu.profile(), |name: &str| object[name].as_bool());
    let profile = Profile {
        lanes: flag("lanes")?,
        subgroups: flag("subgroups")?,
        eights: flag("eights")?,
        int8: flag("int8")?,
        matrix: own.matrix.filter(|_| flag("matrix") == Some(true)),
        chunk: own.chunk,
    };
    let chunk = u32::try_from(object["chunk"].as_u64()?).ok().filter(|chunk| (1..=65_535).contains(chunk))?;
    candidates(gpu).contains(&profile).then_some(Profile { chunk, ..profile })
}

/// A profile in words.
pub fn described(profile: Profile) -> String {
    let Profile { lanes, subgroups, eights, int8, matrix, chunk } = profile;
    let parts = [
        (true, if lanes { "lanes" } else { "groups" }),
        (subgroups && !eights, "subgroups"),
        (eights, "eights"),
        (int8, "int8"),
        (matrix.is_some(), "matrix"),
    ];
    let words: Vec<&str> = parts.into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect();
    format!("{}, chunks of {chunk}", words.join(", "))
}
