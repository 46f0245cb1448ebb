// A quantized tensor: its quants and its scales (`scales`, bound by scale_words.wgsl or scale_min.wgsl) in two
// streams (src/formats/layout.rs arranges them), and a block as bytes, which serves integer dot products as it is. Each quantized format defines `packed(block) -> Packed`.

@group(0) @binding(2) var<storage, read> quants: array<vec4<u32>>; // [rows, blocks, 16 or 32 bytes]

// 32 weights in order, a signed byte each: `low` holds 0 to 15, `high` 16 to 31. Scale and offset as in Block.
struct Packed {
    low: vec4<u32>,
    high: vec4<u32>,
    scale: vec2<f32>,
    offset: f32,
}

// The low nibbles of sixteen bytes are weights 0 to 15, the high ones 16 to 31.
fn low_nibbles(q: vec4<u32>) -> vec4<u32> {
    return q & vec4<u32>(0x0f0f0f0fu);
}

fn high_nibbles(q: vec4<u32>) -> vec4<u32> {
    return (q >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu);
}

fn quad(bytes: u32) -> vec4<f32> {
    return vec4<f32>(unpack4xI8(bytes));
}

fn decode(block: u32) -> Block {
    let p = packed(block);
    return Block(
        quad(p.low.x), quad(p.low.y), quad(p.low.z), quad(p.low.w),
        quad(p.high.x), quad(p.high.y), quad(p.high.z), quad(p.high.w),
        p.scale, p.offset,
    );
}
