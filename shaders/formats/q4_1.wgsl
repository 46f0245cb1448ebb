// Q4_1: w = d * q + m. 20 bytes a block: d, m (halves), then 16 bytes; byte j holds weight j low and weight j + 16 high.

fn quad(dm: vec2<f32>, nibbles: u32) -> vec4<f32> {
    return dm.x * vec4<f32>(unpack4xU8(nibbles & 0x0f0f0f0fu)) + dm.y;
}

fn decode(block: u32) -> Block {
    let i = block * 5u;
    let dm = unpack2x16float(weights[i]);
    let a = weights[i + 1u];
    let b = weights[i + 2u];
    let c = weights[i + 3u];
    let e = weights[i + 4u];
    return Block(
        quad(dm, a), quad(dm, b), quad(dm, c), quad(dm, e),
        quad(dm, a >> 4u), quad(dm, b >> 4u), quad(dm, c >> 4u), quad(dm, e >> 4u),
    );
}
