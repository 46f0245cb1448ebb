//! What a run gives: adapters as GGUF (as llama.cpp takes them) and as PEFT's safetensors, whole models as GGUF.

use super::parameters::{Of, Parameter};
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
use crate::weight::Weight;
use pollster::block_on;
use std::collections::{HashMap, HashSet};
use std::path::Path;

impl Trainer {
    /// The numbers of a parameter as they are now; None if there is none of this name. One at a time: together they may be
    /// more than the memory holds.
    fn value(&self, name: &str) -> Result<Option<(&Parameter, Vec<f32>)>> {
        let (parameters, gpu) = (self.parameters(), self.model().gpu());
        let Some(parameter) = parameters.list().iter().find(|parameter| parameter.name == name) else {
            return Ok(None);
        };
        Ok(Some((parameter, block_on(parameters.read(gpu, parameter, Of::Weights))?)))
    }

    /// The numbers of one half of an adapter.
    fn half(&self, w: &Weight) -> Result<Vec<f32>> {
        self.value(&w.name).map(|value| value.map(|(_, values)| values).unwrap_or_default())
    }

    fn adapters(&self) -> Result<Vec<(usize, &Adapter)>> {
        let adapters = self.model().adapters().ok_or_else(|| Error::Argument {
            what: "adapters to export".into(),
            expected: "a run that trains some".into(),
            got: "one that trains the model itself: export that".into(),
        })?;
        Ok(adapters.blocks.iter().enumerate().flat_map(|(b, list)| list.iter().map(move |a| (b, a))).collect())
    }

    /// Writes the adapters as a GGUF file, for [`Adapters::from_gguf`](crate::model::Adapters::from_gguf) and llama.cpp.
    ///
    /// # Errors
    /// [`Error::Argument`] if the run trains no adapters, [`Error::InFile`] where the file cannot be written.
    pub fn export_adapter(&self, path: &Path) -> Result<()> {
        let adapters = self.adapters()?;
        let mut writer = Writer::new();
        let first = adapters.first().map(|(_, adapter)| adapter.scale * adapter.a.rows as f32);
        writer
            .set("general.type", "adapter")
            .set("general.architecture", self.model().config().architecture.name())
            .set("adapter.type", "lora")
            .set("adapter.lora.alpha", first.unwrap_or(1.0)); // readers divide it by the rank
        let mut values = Vec::new();
        for (_, adapter) in adapters {
            for w in [&adapter.a, &adapter.b] {
                values.push((w, self.half(w)?));
            }
        }
        for (w, values) in &values {
            let (shape, kind) = ([w.cols as u64, w.rows as u64], Format::F32.tensor_type());
            writer.tensor(&w.name, &shape, kind, bytemuck::cast_slice(values));
        }
        replace_with(path, |out| writer.write(out))
    }

    /// Writes the adapters as PEFT has them: `adapter_model.safetensors` and `adapter_config.json` in a folder. GGUF files of
    /// llama models hold the rows of Q and K in another order than their source; here it is the source's again.
    ///
    /// # Errors
    /// As [`Trainer::export_adapter`].
    #[cfg(feature = "peft")]
    pub fn export_peft(&self, folder: &Path, base: &str) -> Result<()> {
        let adapters = self.adapters()?;
        let config = self.model().config();
        let mut tensors = Vec::new();
        for (block, adapter) in &adapters {
            let module = peft::module(adapter.target);
            for (half, w) in [("lora_A", &adapter.a), ("lora_B", &adapter.b)] {
                let mut values = self.half(w)?;
                if half == "lora_B" {
                    values = peft::in_source_order(values, adapter, config);
                }
                let name = format!("base_model.model.model.layers.{block}.{module}.{half}.weight");
                tensors.push((name, [w.rows as usize, w.cols as usize], values));
            }
        }
        peft::write(folder, base, &adapters, &tensors)
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
                let projection = self.value(PROJECTION)?.map(|(_, values)| values).unwrap_or_default();
                return projected(donor, &projection);
            }
            let Some(adapter) = adapters.get(name) else {
                return self.value(name)?.map_or_else(|| base.floats(info), |(_, values)| Ok(values));
            };
            let mut floats = base.floats(info)?;
            merge(&mut floats, &self.half(&adapter.a)?, &self.half(&adapter.b)?, adapter);
            Ok(floats)
        };
        replace_with(path, |out| {
            writer.write_with(out, |name, out| {
                let Some(info) = base.tensor(name) else { return Ok(()) };
                let Some(format) = formats.get(name) else { return out.write_all(base.data(info)) };
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

/// How PEFT (<https://github.com/huggingface/peft>) names and keeps adapters.
#[cfg(feature = "peft")]
mod peft {
    use super::*;
    use crate::model::{Architecture, Config, Target};
    use safetensors::tensor::{Dtype, TensorView};

    pub fn module(target: Target) -> &'static str {
        match target {
            Target::Q => "self_attn.q_proj",
            Target::K => "self_attn.k_proj",
            Target::V => "self_attn.v_proj",
            Target::Output => "self_attn.o_proj",
            Target::Gate => "mlp.gate_proj",
            Target::Up => "mlp.up_proj",
            Target::Down => "mlp.down_proj",
        }
    }

    /// Rows of B: converters of llama models put the two halves of each head's channels in turns.
    pub fn in_source_order(b: Vec<f32>, adapter: &Adapter, config: &Config) -> Vec<f32> {
        let permuted = config.architecture == Architecture::Llama && matches!(adapter.target, Target::Q | Target::K);
        if !permuted {
            return b;
        }
        let (rank, d) = (adapter.b.cols as usize, config.head_size as usize);
        let row = |i: usize| &b[i * rank..][..rank];
        let source = |i: usize| {
            let (head, c) = (i / d, i % d);
            head * d + if c < d / 2 { 2 * c } else { 2 * (c - d / 2) + 1 }
        };
        (0..adapter.b.rows as usize).flat_map(|i| row(source(i))).copied().collect()
    }

    pub fn write(
        folder: &Path,
        base: &str,
        adapters: &[(usize, &Adapter)],
        tensors: &[(String, [usize; 2], Vec<f32>)],
    ) -> Result<()> {
        let views = tensors.iter().map(|(name, shape, values)| {
            let bytes = bytemuck::cast_slice(values);
            let view = TensorView::new(Dtype::F32, shape.to_vec(), bytes).map_err(std::io::Error::other);
            view.map(|view| (name, view))
        });
        let failed = |source| Error::Write { source };
        let views = views.collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        let bytes = safetensors::serialize(views, None).map_err(|error| failed(std::io::Error::other(error)))?;
        let (rank, scale) = adapters.first().map_or((1, 1.0), |(_, adapter)| (adapter.a.rows, adapter.scale));
        let mut modules: Vec<&str> =
            adapters.iter().filter_map(|(_, adapter)| module(adapter.target).split('.').next_back()).collect();
        modules.sort_unstable();
        modules.dedup();
        let config = serde_json::json!({
            "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": base, "inference_mode": true,
            "r": rank, "lora_alpha": scale * rank as f32, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": false,
            "target_modules": modules,
        });
        replace(&folder.join("adapter_model.safetensors"), &bytes)?;
        replace(&folder.join("adapter_config.json"), format!("{config:#}\n").as_bytes())
    }
}
