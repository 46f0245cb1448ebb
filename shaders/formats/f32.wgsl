// F32 weights: 32 floats a block, 128 bytes.

@group(0) @binding(2) var<storage, read> weights: array<vec4<f32>>; // [rows, blocks, 8]

fn decode(block: u32) -> Block {
    let i = block * 8u;
    return Block(
        weights[i], weights[i + 1u], weights[i + 2u], weights[i + 3u],
        weights[i + 4u], weights[i + 5u], weights[i + 6u], weights[i + 7u],
    );
}
