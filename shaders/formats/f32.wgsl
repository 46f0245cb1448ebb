// F32 weights: 32 floats a block, 128 bytes.

@group(0) @binding(2) var<storage, read> quants: array<vec4<f32>>; // [rows, blocks, 8]

fn decode(block: u32) -> Block {
    let i = block * 8u;
    return Block(
        quants[i], quants[i + 1u], quants[i + 2u], quants[i + 3u],
        quants[i + 4u], quants[i + 5u], quants[i + 6u], quants[i + 7u],
        vec2<f32>(1.0), 0.0,
    );
}
