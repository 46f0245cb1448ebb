//! Row gather: y[t] = table[ids[t]].

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::shaders::format_files;
use crate::tensor::Tensor;
use crate::weight::{Part, Weight};

params! { EmbedParams { blocks: u32, first_row: u32, rows: u32, y_stride: u32, skip: u32, } }

/// table [V, C], ids [T] (u32) -> y [T, C]. One step a part of the table; the part that holds a row writes it.
pub fn embed(plan: &mut PlanBuilder, label: &str, table: &Weight, ids: &wgpu::Buffer, y: &Tensor) -> Result<()> {
    assert_eq!(table.cols, y.cols, "{label}: the table {} has other rows than y", table.name);
    let blocks = table.blocks();
    for part in &table.parts {
        let key = KernelKey::new(&[format_files(part.format), &[part.order.file(), "embed.wgsl"]]);
        let Part { first_row, rows, skip, .. } = *part;
        let params = EmbedParams { blocks, first_row, rows, y_stride: y.stride() / 4, skip };
        let mut buffers = part.buffers();
        buffers.extend([("ids", ids), ("y", &y.buffer)]);
        plan.step(label, &key, params, &buffers, Grid::lanes(blocks), y)?;
        plan.note(format!("[{}, {}] {}", part.rows, table.cols, part.format.name()));
        plan.cost(Cost { token_bytes: part.bytes() / part.rows as u64, ..Cost::default() });
    }
    Ok(())
}
