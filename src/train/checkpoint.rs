//! Checkpoints: what a run needs to go on as if it had never stopped, in one GGUF file that is replaced whole.

use super::parameters::{Of, Parameter};
use super::trainer::Trainer;
use crate::error::{Error, Result};
use crate::files::replace_with;
use crate::formats::Format;
use crate::gguf::{Gguf, Writer};
use pollster::block_on;
use std::path::Path;

/// `general.type` of a checkpoint.
const KIND: &str = "checkpoint";

/// Where a run stands, beside its weights, moments and steps, of which the trainer knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Sequences drawn from the data.
    pub position: u64,
    /// A number that tells base and data apart from others.
    pub data: u64,
    /// A number that tells the settings apart from others.
    pub settings: u64,
}

/// The tensors of a parameter in the file: its weights and its moments.
fn of(moments: usize) -> impl Iterator<Item = Of> {
    std::iter::once(Of::Weights).chain((0..moments).map(Of::Moment))
}

fn name(parameter: &Parameter, of: Of) -> String {
    match of {
        Of::Moment(i) => format!("{}.moment{i}", parameter.name),
        _ => parameter.name.clone(),
    }
}

impl Trainer {
    /// Writes weights, moments, steps and the run's place. The file there is replaced when the new one is whole and on the disk.
    ///
    /// # Errors
    /// [`Error::InFile`] where it cannot be written, or what the GPU reports.
    pub fn save(&self, path: &Path, place: Place) -> Result<()> {
        let moments = self.options().optimizer.moments();
        let (parameters, gpu) = (self.parameters(), self.model().gpu());
        let mut writer = Writer::new();
        writer
            .set("general.type", KIND)
            .set("general.architecture", self.model().config().architecture.name())
            .set("peregrine.train.step", self.steps())
            .set("peregrine.train.position", place.position)
            .set("peregrine.train.skipped", self.skipped())
            .set("peregrine.train.data", place.data)
            .set("peregrine.train.settings", place.settings);
        let mut order = Vec::new();
        for parameter in parameters.list() {
            for of in of(moments) {
                writer.tensor_later(&name(parameter, of), &parameter.shape, Format::F32.tensor_type());
                order.push((parameter, of));
            }
        }
        let mut order = order.into_iter();
        replace_with(path, |out| {
            writer.write_with(out, |_, out| {
                let Some((parameter, of)) = order.next() else { return Ok(()) };
                let values = block_on(parameters.read(gpu, parameter, of)).map_err(std::io::Error::other)?;
                out.write_all(bytemuck::cast_slice(&values))
            })
        })
    }

    /// Takes a run up where [`Trainer::save`] left it.
    ///
    /// # Errors
    /// [`Error::Key`], [`Error::MissingTensor`] or [`Error::Tensor`] for a file that is no checkpoint or not of such a run;
    /// the trainer is then as it was. If the GPU fails midway, it is not to be used.
    pub fn restore(&mut self, gguf: &Gguf) -> Result<Place> {
        let kind = gguf.str("general.type")?.unwrap_or("none");
        if kind != KIND {
            let (key, expected) = ("general.type".into(), format!("{KIND}: a file that a training run wrote"));
            return Err(Error::Key { key, expected, got: kind.into() });
        }
        let number = |key: &str| {
            let missing = || Error::MissingKey { key: key.into(), hint: "the checkpoint is incomplete".into() };
            gguf.get(key).and_then(|value| value.as_u64()).ok_or_else(missing)
        };
        let place = Place {
            position: number("peregrine.train.position")?,
            data: number("peregrine.train.data")?,
            settings: number("peregrine.train.settings")?,
        };
        let step = number("peregrine.train.step")?;
        let skipped = number("peregrine.train.skipped")?;
        let moments = self.options().optimizer.moments();
        let (parameters, gpu) = (self.parameters(), self.model().gpu());
        let mut found = Vec::new();
        for parameter in parameters.list() {
            for of in of(moments) {
                let name = name(parameter, of);
                let hint = "the checkpoint is of a run that trained other tensors, or by another optimizer".to_string();
                let missing = || Error::MissingTensor { name: name.clone(), hint };
                let info = gguf.tensor(&name).ok_or_else(missing)?;
                if info.shape != parameter.shape || info.kind != Format::F32.tensor_type() {
                    let shape = |shape: &[u64], kind: &str| format!("{kind} of shape {}", crate::gguf::dims(shape));
                    let (expected, got) = (shape(&parameter.shape, "F32"), shape(&info.shape, info.kind.name()));
                    return Err(Error::Tensor { name, expected, got });
                }
                found.push((parameter, of, info));
            }
        }
        for (parameter, of, info) in found {
            parameters.write(gpu, parameter, of, &gguf.floats(info)?)?;
        }
        self.set_steps(step, skipped);
        Ok(place)
    }
}
