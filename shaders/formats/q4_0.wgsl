// Q4_0: w = d * (q - 8). 18 bytes a block: d (half), then 16 bytes; byte j holds weight j low and weight j + 16 high.

fn quad(d: f32, nibbles: u32) -> vec4<f32> {
    return d * (vec4<f32>(unpack4xU8(nibbles & 0x0f0f0f0fu)) - 8.0);
}

fn decode(block: u32) -> Block {
    let byte = block * 18u;
    let d = half_at(byte);
    let a = word_at(byte + 2u);
    let b = word_at(byte + 6u);
    let c = word_at(byte + 10u);
    let e = word_at(byte + 14u);
    return Block(
        quad(d, a), quad(d, b), quad(d, c), quad(d, e),
        quad(d, a >> 4u), quad(d, b >> 4u), quad(d, c >> 4u), quad(d, e >> 4u),
    );
}
