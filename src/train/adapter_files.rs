//! Adapters as the files that others take: GGUF (llama.cpp) and PEFT's safetensors.

use super::parameters::{Of, Parameter};
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::formats::Format;
use crate::gguf::Writer;
use crate::model::adapters::Adapter;
use crate::weight::Weight;

impl Trainer {
    /// The numbers of a parameter as they are now; None if there is none of this name. One at a time: together they may be
    /// more than the memory holds.
    pub(super) async fn value(&self, name: &str) -> Result<Option<(&Parameter, Vec<f32>)>> {
        let (parameters, gpu) = (self.parameters(), self.model().gpu());
        let Some(parameter) = parameters.list().iter().find(|parameter| parameter.name == name) else {
            return Ok(None);
        };
        Ok(Some((parameter, parameters.read(gpu, parameter, Of::Weights).await?)))
    }

    /// The numbers of one half of an adapter.
    pub(super) async fn half(&self, w: &Weight) -> Result<Vec<f32>> {
        Ok(self.value(&w.name).await?.map(|(_, values)| values).unwrap_or_default())
    }

    pub(super) fn adapters(&self) -> Result<Vec<(usize, &Adapter)>> {
        let adapters = self.model().adapters().ok_or_else(|| Error::Argument {
            what: "adapters to export".into(),
            expected: "a run that trains some".into(),
            got: "one that trains the model itself: export that".into(),
        })?;
        Ok(adapters.blocks.iter().enumerate().flat_map(|(b, list)| list.iter().map(move |a| (b, a))).collect())
    }

    /// The adapters as a GGUF file, for [`Adapters::from_gguf`](crate::model::Adapters::from_gguf) and llama.cpp.
    ///
    /// # Errors
    /// [`Error::Argument`] if the run trains no adapters.
    pub async fn adapter_gguf(&self) -> Result<Vec<u8>> {
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
                values.push((w, self.half(w).await?));
            }
        }
        for (w, values) in &values {
            let (shape, kind) = ([w.cols as u64, w.rows as u64], Format::F32.tensor_type());
            writer.tensor(&w.name, &shape, kind, bytemuck::cast_slice(values));
        }
        let mut bytes = Vec::new();
        writer.write(&mut bytes)?;
        Ok(bytes)
    }

    /// The adapters as PEFT has them: names and contents of `adapter_model.safetensors` and `adapter_config.json`. GGUF files of
    /// llama models hold the rows of Q and K in another order than their source; here it is the source's again.
    ///
    /// # Errors
    /// As [`Trainer::adapter_gguf`].
    #[cfg(feature = "peft")]
    pub async fn adapter_peft(&self, base: &str) -> Result<[(&'static str, Vec<u8>); 2]> {
        let adapters = self.adapters()?;
        let config = self.model().config();
        let mut tensors = Vec::new();
        for (block, adapter) in &adapters {
            let module = peft::module(adapter.target);
            for (half, w) in [("lora_A", &adapter.a), ("lora_B", &adapter.b)] {
                let mut values = self.half(w).await?;
                if half == "lora_B" {
                    values = peft::in_source_order(values, adapter, config);
                }
                let name = format!("base_model.model.model.layers.{block}.{module}.{half}.weight");
                tensors.push((name, [w.rows as usize, w.cols as usize], values));
            }
        }
        peft::files(base, &adapters, &tensors)
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

    /// The two files of a folder.
    pub fn files(
        base: &str,
        adapters: &[(usize, &Adapter)],
        tensors: &[(String, [usize; 2], Vec<f32>)],
    ) -> Result<[(&'static str, Vec<u8>); 2]> {
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
        Ok([("adapter_model.safetensors", bytes), ("adapter_config.json", format!("{config:#}\n").into_bytes())])
    }
}
