// F16 weights: 32 halves a block, 64 bytes.

@group(0) @binding(2) var<storage, read> weights: array<vec4<u32>>; // [rows, blocks, 4], two halves a word

fn quad(a: u32, b: u32) -> vec4<f32> {
    return vec4<f32>(unpack2x16float(a), unpack2x16float(b));
}

fn decode(block: u32) -> Block {
    let i = block * 4u;
    let a = weights[i];
    let b = weights[i + 1u];
    let c = weights[i + 2u];
    let d = weights[i + 3u];
    return Block(
        quad(a.x, a.y), quad(a.z, a.w), quad(b.x, b.y), quad(b.z, b.w),
        quad(c.x, c.y), quad(c.z, c.w), quad(d.x, d.y), quad(d.z, d.w),
    );
}
