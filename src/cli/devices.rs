//! `devices`: every GPU adapter, and which one would be chosen.

use super::{Failure, output};
use clap::Args;
use peregrine::{Gpu, GpuCard, GpuOptions, Matrix, block_on};
use serde_json::{Value, json};

#[derive(Args)]
pub struct Devices {
    /// Print a JSON array, an object for each
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub fn run(self) -> Result<(), Failure> {
        let cards = block_on(Gpu::cards());
        if self.json {
            output::json(&cards.iter().map(object).collect())?;
        } else {
            let chosen = cards.iter().find(|card| card.chosen).map_or(0, |card| card.index);
            cards.iter().try_for_each(|card| print(card, chosen))?;
        }
        if cards.is_empty() {
            block_on(Gpu::with(&GpuOptions::default()))?; // fails, and says what to install
        }
        Ok(())
    }
}

fn object(card: &GpuCard) -> Value {
    let limits = &card.limits;
    json!({
        "index": card.index,
        "name": card.name,
        "backend": format!("{:?}", card.backend),
        "type": format!("{:?}", card.device_type),
        "driver": card.driver,
        "f16": card.f16,
        "subgroups": card.subgroups,
        "subgroup_size": [card.subgroup_size.0, card.subgroup_size.1],
        "matrix": card.matrix.map(|matrix| format!("{matrix:?}")),
        "max_buffer_bytes": limits.max_buffer_size,
        "max_binding_bytes": limits.max_storage_buffer_binding_size,
        "max_workgroup_bytes": limits.max_compute_workgroup_storage_size,
        "max_invocations": limits.max_compute_invocations_per_workgroup,
        "chosen": card.chosen,
        "why": card.why,
    })
}

/// `chosen` is the index of the one that would be taken.
fn print(card: &GpuCard, chosen: usize) -> std::io::Result<()> {
    let limits = &card.limits;
    let size = |bytes: u64| format!("{} MiB", bytes >> 20);
    let subgroups = match (card.subgroups, card.subgroup_size) {
        (false, _) => "no subgroups".into(),
        (true, (low, high)) if low == high => format!("subgroups of {low}"),
        (true, (low, high)) => format!("subgroups of {low} to {high}"),
    };
    let mark = if card.chosen { "*" } else { " " };
    output::line(format!("{mark} {}: {}", card.index, console::style(&card.name).bold()), 5)?;
    let line = |name: &str, text: String| output::line(format!("     {name:<12}{text}"), 17);
    line("backend", format!("{:?}, driver {}", card.backend, card.driver))?;
    let matrix = match card.matrix {
        Some(Matrix::Half16) => "matrices of 16 x 16 halves",
        Some(Matrix::Float8) => "matrices of 8 x 8 floats",
        Some(Matrix::Emulated | Matrix::EmulatedHalves) | None => "no matrix hardware",
    };
    line("shaders", format!("{}, {subgroups}, {matrix}", if card.f16 { "f16" } else { "no f16" }))?;
    let (buffer, binding) = (size(limits.max_buffer_size), size(limits.max_storage_buffer_binding_size));
    line("buffers", format!("up to {buffer}, {binding} in one binding"))?;
    let shared = limits.max_compute_workgroup_storage_size >> 10;
    line("workgroups", format!("up to {} lanes, {shared} KiB shared", limits.max_compute_invocations_per_workgroup))?;
    match card.chosen {
        true => line("chosen", card.why.clone()),
        false => line("not chosen", format!("{}; {chosen} comes first", card.why)),
    }
}
