//! `devices`: every GPU adapter, and which one would be chosen.

use super::{Failure, output};
use clap::Args;
use peregrine::{Error, Gpu, GpuOptions, block_on};
use serde_json::json;

#[derive(Args)]
pub struct Devices {
    /// Print a list of objects
    #[arg(long)]
    json: bool,
}

impl Devices {
    pub fn run(self) -> Result<(), Failure> {
        let cards = block_on(Gpu::cards());
        if cards.is_empty() {
            // the error that says what to install
            return match block_on(Gpu::with(&GpuOptions::default())) {
                Err(error) => Err(error.into()),
                Ok(_) => Err(Error::NoGpu {
                    what: "none was found".into(),
                    hint: "One appeared meanwhile; try again".into(),
                }
                .into()),
            };
        }
        if self.json {
            let list: Vec<_> = cards
                .iter()
                .map(|card| {
                    json!({
                        "index": card.index,
                        "name": card.name,
                        "backend": format!("{:?}", card.backend),
                        "type": format!("{:?}", card.device_type),
                        "driver": card.driver,
                        "f16": card.f16,
                        "subgroups": card.subgroups,
                        "subgroup_size": [card.subgroup_size.0, card.subgroup_size.1],
                        "max_buffer_bytes": card.limits.max_buffer_size,
                        "max_binding_bytes": card.limits.max_storage_buffer_binding_size,
                        "max_workgroup_bytes": card.limits.max_compute_workgroup_storage_size,
                        "max_invocations": card.limits.max_compute_invocations_per_workgroup,
                        "chosen": card.chosen,
                        "why": card.why,
                    })
                })
                .collect();
            return Ok(output::json(&json!(list))?);
        }
        for card in cards {
            let limits = &card.limits;
            let size = |bytes: u64| format!("{} MiB", bytes >> 20);
            let subgroups = match card.subgroups {
                true => format!("subgroups of {} to {}", card.subgroup_size.0, card.subgroup_size.1),
                false => "no subgroups".into(),
            };
            println!("{} {}: {}", if card.chosen { "*" } else { " " }, card.index, card.name);
            println!("     {:?}, driver {}", card.backend, card.driver);
            println!("     {}, {subgroups}", if card.f16 { "f16" } else { "no f16" });
            println!(
                "     buffers up to {}, bindings up to {}, {} KiB shared by a workgroup of up to {}",
                size(limits.max_buffer_size),
                size(limits.max_storage_buffer_binding_size),
                limits.max_compute_workgroup_storage_size >> 10,
                limits.max_compute_invocations_per_workgroup
            );
            println!("     {}", card.why);
        }
        Ok(())
    }
}
