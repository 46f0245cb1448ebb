//! Sums and extremes of a tensor's numbers, in parts that are summed where they are read.

use super::reduce;
use crate::error::Result;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::tensor::Tensor;

params! { StatisticsParams { cols: u32, stride: u32, tile: u32, tiles: u32, first: u32, } }

/// Columns that a workgroup sums: few enough that a sum in f32 is as good as the numbers.
const TILE: u32 = 4096;

/// Floats of one part.
pub const PART: u32 = 8;

/// Parts of a row.
pub fn parts_of(cols: u32) -> u32 {
    cols.div_ceil(TILE)
}

/// x [T, cols] -> parts [T, [`parts_of`], [`PART`]] from float `first` on, a multiple of 4: sum of squares, sum, sum of
/// sizes, number of NaN, largest, minus the smallest, 0, 0. Where x has one row, of that row whatever the pass.
pub fn statistics(plan: &mut PlanBuilder, label: &str, x: &Tensor, parts: &Tensor, first: u32) -> Result<()> {
    let tiles = parts_of(x.cols);
    let params = StatisticsParams { cols: x.cols, stride: x.stride(), tile: TILE, tiles, first: first / 4 };
    let key = KernelKey::new(&[&[reduce(&plan.gpu), "statistics.wgsl"]]);
    let grid = if x.rows == 1 { Grid::once(tiles) } else { Grid::tiles(tiles, 1) };
    plan.step(label, &key, params, &[("x", &x.buffer), ("parts", &parts.buffer)], grid, parts)?;
    let (token_bytes, token_flops) = (x.cols as u64 * 4, x.cols as u64 * 8);
    plan.cost(Cost { token_bytes, token_flops, single: x.rows == 1, ..Cost::default() });
    Ok(())
}
