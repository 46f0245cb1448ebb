// Q5_1: w = d * q + m. 24 bytes a block: d, m (halves), 32 high bits, then 16 bytes; byte j holds weight j low and j + 16 high.

fn quad(dm: vec2<f32>, nibbles: u32, high: u32) -> vec4<f32> {
    return dm.x * vec4<f32>(unpack4xU8((nibbles & 0x0f0f0f0fu) | fifth(high))) + dm.y;
}

fn decode(block: u32) -> Block {
    let i = block * 6u;
    let dm = unpack2x16float(weights[i]);
    let high = weights[i + 1u];
    let a = weights[i + 2u];
    let b = weights[i + 3u];
    let c = weights[i + 4u];
    let e = weights[i + 5u];
    return Block(
        quad(dm, a, high), quad(dm, b, high >> 4u), quad(dm, c, high >> 8u), quad(dm, e, high >> 12u),
        quad(dm, a >> 4u, high >> 16u), quad(dm, b >> 4u, high >> 20u),
        quad(dm, c >> 4u, high >> 24u), quad(dm, e >> 4u, high >> 28u),
    );
}
