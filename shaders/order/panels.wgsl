// Blocks of W lie in panels of 32 rows: the first block of each row, then the second of each. Lanes with neighbouring rows
// then read one stream of memory together, where rows would be as many streams as lanes. src/weight.rs arranges them.

const BLOCK_STEP: u32 = 32u; // from a block of a row to the next

fn first_block(row: u32) -> u32 {
    let i = params.skip + row;
    return (i >> 5u) * params.blocks * 32u + (i & 31u);
}
