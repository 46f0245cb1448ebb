// Two weights a word: 32 a block, 64 bytes. `quad` makes four weights of two words; f16.wgsl and bf16.wgsl define it.

@group(0) @binding(2) var<storage, read> quants: array<vec4<u32>>; // [rows, blocks, 4]

fn decode(block: u32) -> Block {
    let i = block * 4u;
    let a = quants[i];
    let b = quants[i + 1u];
    let c = quants[i + 2u];
    let d = quants[i + 3u];
    return Block(
        quad(a.x, a.y), quad(a.z, a.w), quad(b.x, b.y), quad(b.z, b.w),
        quad(c.x, c.y), quad(c.z, c.w), quad(d.x, d.y), quad(d.z, d.w),
        vec2<f32>(1.0), 0.0,
    );
}
