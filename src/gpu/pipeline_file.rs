//! The driver's compiled pipelines on disk, so that the next start need not compile them.
//!
//! The file: a line that names our version, adapter and driver; eight bytes, the hash of what follows; the driver's data.

use super::{GpuCard, lock};
use crate::files;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

pub(super) struct PipelineFile {
    pub cache: wgpu::PipelineCache,
    path: PathBuf,
    /// The first line.
    head: String,
    /// The hash of the data that the file holds: the same data are not written again.
    saved: Mutex<Option<u64>>,
}

impl PipelineFile {
    /// Begins with what the file in this folder holds. What is damaged, or another driver's, is as good as nothing.
    /// None if the device has no such cache.
    pub fn open(folder: &Path, device: &wgpu::Device, card: &GpuCard) -> Option<PipelineFile> {
        if !device.features().contains(wgpu::Features::PIPELINE_CACHE) {
            return None;
        }
        let path = folder.join(format!("pipelines-{}.bin", card.id()));
        let (version, driver) = (env!("CARGO_PKG_VERSION"), card.driver.replace(['\n', '\r'], " "));
        let head = format!("peregrine {version} pipelines of {} ({:?}), {driver}\n", card.name, card.backend);
        let content = std::fs::read(&path).ok();
        let found = content.as_deref().and_then(|content| intact(content, &head));
        match (&content, found) {
            (None, _) => log::info!("no pipelines are kept in {} yet", path.display()),
            (_, None) => log::info!("{} is damaged or of another driver: made anew", path.display()),
            (_, Some((data, _))) => log::info!("{} bytes of pipelines from {}", data.len(), path.display()),
        }
        let descriptor = wgpu::PipelineCacheDescriptor {
            label: Some("peregrine"),
            data: found.map(|(data, _)| data),
            fallback: true,
        };
        let scope = device.push_error_scope(wgpu::ErrorFilter::Validation);
        // SAFETY: the data come from get_data on this adapter under this driver, as the first line says, and the hash
        // says that they are unchanged.
        let cache = unsafe { device.create_pipeline_cache(&descriptor) };
        if let Some(Some(error)) = super::now(scope.pop()) {
            log::info!("pipelines cannot be kept: {error}");
            return None;
        }
        Some(PipelineFile { cache, path, head, saved: Mutex::new(found.map(|(_, hash)| hash)) })
    }

    /// Writes what the driver has compiled, if the file does not hold it yet. That this fails is no failure: the next
    /// start is slower.
    pub fn save(&self) {
        let Some(data) = self.cache.get_data() else { return };
        let hash = files::hash(&data);
        let mut saved = lock(&self.saved);
        if *saved == Some(hash) {
            return;
        }
        let content = [self.head.as_bytes(), &hash.to_le_bytes(), &data].concat();
        match files::replace(&self.path, &content) {
            Ok(()) => *saved = Some(hash),
            Err(error) => log::info!("pipelines are not kept: {}: {error}", self.path.display()),
        }
    }
}

/// The driver's data and their hash, if this file has this first line and nothing of it was changed.
fn intact<'a>(content: &'a [u8], head: &str) -> Option<(&'a [u8], u64)> {
    let (hash, data) = content.strip_prefix(head.as_bytes())?.split_first_chunk()?;
    let hash = u64::from_le_bytes(*hash);
    (files::hash(data) == hash).then_some((data, hash))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_written_is_read() {
        let (head, data) = ("peregrine 1 pipelines of a card, a driver\n", b"compiled".as_slice());
        let good = [head.as_bytes(), &files::hash(data).to_le_bytes(), data].concat();
        assert_eq!(intact(&good, head), Some((data, files::hash(data))));
        for cut in 0..good.len() {
            assert_eq!(intact(&good[..cut], head), None, "cut to {cut} bytes");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(intact(&bad, head), None, "byte {at} changed");
        }
        assert_eq!(intact(&[&good[..], b"x"].concat(), head), None, "longer");
        assert_eq!(intact(&good, "peregrine 2 pipelines of a card, a driver\n"), None, "another version");
    }
}
