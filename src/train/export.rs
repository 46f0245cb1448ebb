//! What a run gives as files: adapters (`adapter_files.rs`), and whole models as GGUF.

use super::trainer::Trainer;
use crate::error::{Error, Result};
#[cfg(feature = "peft")]
use crate::files::replace;
use crate::files::replace_with;
use crate::formats::Format;
use crate::gguf::{Gguf, TensorInfo, Writer};
use crate::model::adapters::Adapter;
use crate::model::tensors::{Role, slots};
use crate::model::weights::PROJECTION;
use pollster::block_on;
use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::path::Path;

impl Trainer {
    /// Writes the adapters as a GGUF file, for [`Adapters::from_gguf`](crate::model::Adapters::from_gguf) and llama.cpp.
    ///
    /// # Errors
    /// Those of [`Trainer::adapter_gguf`], [`Error::InFile`] where the file cannot be written.
    pub fn export_adapter(&self, path: &Path) -> Result<()> {
        let bytes = block_on(self.adapter_gguf())?;
        replace_with(path, |out| out.write_all(&bytes).map_err(|source| Error::Write { source }))
    }

    /// Writes the adapters as PEFT has them into a folder: [`Trainer::adapter_peft`].
    ///
    /// # Errors
    /// As [`Trainer::export_adapter`].
    #[cfg(feature = "peft")]
    pub fn export_peft(&self, folder: &Path, base: &str) -> Result<()> {
        let files = block_on(self.adapter_peft(base))?;
        files.iter().try_for_each(|(name, bytes)| replace(&folder.join(name), bytes))
    }

    /// Writes the whole model: `base`, the file that it was loaded from, with what was learned. Adapters are merged:
    /// W + scale B A; so is the projection of a warm start with the embeddings of its `donor`. Matrices are written in
    /// `format`, or each in the base's own; everything else as it is there.
    ///
    /// # Errors
    /// [`Error::Tensor`] for rows that are no whole blocks of the format, [`Error::InFile`] where the file cannot be written.
    pub fn export_model(&self, base: &Gguf, donor: Option<&Gguf>, path: &Path, format: Option<Format>) -> Result<()> {
        let config = self.model().config();
        let adapters: HashMap<String, &Adapter> = match self.model().adapters() {
            None => HashMap::new(),
            Some(_) => {
                let adapters = self.adapters()?.into_iter();
                adapters.map(|(b, adapter)| (format!("blk.{b}.{}.weight", adapter.target.name()), adapter)).collect()
            }
        };
        let parameters: HashSet<&str> = self.parameters().list().iter().map(|p| p.name.as_str()).collect();
        let projects = |name: &str| donor.filter(|_| name == "token_embd.weight" && parameters.contains(PROJECTION));
        let mut writer = Writer::new();
        let as_in_base = |key: &str| key.starts_with("split.") || key == "general.file_type";
        for (key, value) in base.metadata().iter().filter(|(key, _)| !as_in_base(key)) {
            writer.set(key, value.clone());
        }
        let roles: HashMap<String, Role> = slots(config).into_iter().map(|slot| (slot.name, slot.role)).collect();
        let mut formats = HashMap::new();
        for info in base.tensors() {
            let matrix = roles.get(&info.name) == Some(&Role::Matrix);
            let name = info.name.as_str();
            let learned = parameters.contains(name) || adapters.contains_key(name) || projects(name).is_some();
            let own = Format::from_type(info.kind);
            let chosen = match (matrix, format) {
                (true, Some(format)) => Some(format),
                (true, None) if learned => own,
                (false, _) if learned => Some(Format::F32),
                _ => None, // byte for byte
            };
            if let Some(format) = chosen {
                if !info.shape[0].is_multiple_of(format.block_weights() as u64) {
                    let expected = format!("rows of whole blocks of {} {}", format.block_weights(), format.name());
                    let got = format!("rows of {}: choose another format", info.shape[0]);
                    return Err(Error::Tensor { name: info.name.clone(), expected, got });
                }
                formats.insert(info.name.as_str(), format);
            }
            writer.tensor_later(&info.name, &info.shape, chosen.map_or(info.kind, Format::tensor_type));
        }
        let floats = |info: &TensorInfo| -> Result<Vec<f32>> {
            let name = info.name.as_str();
            if let Some(donor) = projects(name) {
                let projection = block_on(self.value(PROJECTION))?.map(|(_, values)| values).unwrap_or_default();
                return projected(donor, &projection);
            }
            let Some(adapter) = adapters.get(name) else {
                return block_on(self.value(name))?.map_or_else(|| base.floats(info), |(_, values)| Ok(values));
            };
            let mut floats = base.floats(info)?;
            merge(&mut floats, &block_on(self.half(&adapter.a))?, &block_on(self.half(&adapter.b))?, adapter);
            Ok(floats)
        };
        replace_with(path, |out| {
            writer.write_with(out, |name, out| {
                let Some(info) = base.tensor(name) else { return Ok(()) };
                let Some(format) = formats.get(name) else {
                    return out.write_all(base.data(info).map_err(std::io::Error::other)?);
                };
                let mut bytes = Vec::new();
                format.encode(&floats(info).map_err(std::io::Error::other)?, &mut bytes);
                out.write_all(&bytes)
            })
        })
    }
}

/// A donor's embeddings [V, donor's C] through a projection [C, donor's C]: [V, C]; sums in f64.
fn projected(donor: &Gguf, projection: &[f32]) -> Result<Vec<f32>> {
    let name = "token_embd.weight";
    let hint = "the donor has no embeddings".to_string();
    let info = donor.tensor(name).ok_or_else(|| Error::MissingTensor { name: name.into(), hint })?;
    let (floats, width) = (donor.floats(info)?, info.shape[0] as usize);
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| *a as f64 * *b as f64).sum::<f64>() as f32;
    Ok(floats.chunks_exact(width).flat_map(|row| projection.chunks_exact(width).map(|p| dot(row, p))).collect())
}

/// w [N, K] += scale b [N, rank] a [rank, K]; sums in f64.
fn merge(w: &mut [f32], a: &[f32], b: &[f32], adapter: &Adapter) {
    let (rank, k) = (adapter.a.rows as usize, adapter.a.cols as usize);
    for (row, b) in w.chunks_exact_mut(k).zip(b.chunks_exact(rank)) {
        let mut sums = vec![0.0f64; k];
        for (b, a) in b.iter().zip(a.chunks_exact(k)) {
            sums.iter_mut().zip(a).for_each(|(sum, a)| *sum += *b as f64 * *a as f64);
        }
        row.iter_mut().zip(&sums).for_each(|(w, sum)| *w += (*sum * adapter.scale as f64) as f32);
    }
}
