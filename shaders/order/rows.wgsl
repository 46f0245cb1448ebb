// Blocks of W lie row by row, after `skip` rows that belong to others. order/panels.wgsl defines the same names.

const BLOCK_STEP: u32 = 1u; // from a block of a row to the next

fn first_block(row: u32) -> u32 {
    return (params.skip + row) * params.blocks;
}
