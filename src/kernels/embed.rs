//! Row gather: y[t] = table[ids[t]].

use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Grid, PlanBuilder};
use crate::shaders::format_files;
use crate::tensor::Tensor;
use crate::weight::Weight;

params! { EmbedParams { blocks: u32, first_row: u32, rows: u32, y_stride: u32, } }

/// table [V, C], ids [T] (u32) -> y [T, C]. One step a shard; the shard that holds a row writes it.
pub fn embed(plan: &mut PlanBuilder, label: &str, table: &Weight, ids: &wgpu::Buffer, y: &Tensor) -> Result<()> {
    assert_eq!(table.cols, y.cols, "{label}: the table {} has other rows than y", table.name);
    let key = KernelKey::new(&[format_files(table.format), &["embed.wgsl"]]);
    let blocks = table.blocks();
    for shard in &table.shards {
        let params = EmbedParams { blocks, first_row: shard.first_row, rows: shard.rows, y_stride: y.stride() / 4 };
        let buffers = [("weights", &shard.buffer), ("ids", ids), ("y", &y.buffer)];
        plan.step(label, &key, params, &buffers, Grid::lanes(blocks), y)?;
    }
    Ok(())
}
