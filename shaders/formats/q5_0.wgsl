// Q5_0: w = d * (q - 16). 22 bytes a block: d (half), 32 high bits, then 16 bytes; byte j holds weight j low and j + 16 high.

fn quad(d: f32, nibbles: u32, high: u32) -> vec4<f32> {
    return d * (vec4<f32>(unpack4xU8((nibbles & 0x0f0f0f0fu) | fifth(high))) - 16.0);
}

fn decode(block: u32) -> Block {
    let byte = block * 22u;
    let d = half_at(byte);
    let high = word_at(byte + 2u);
    let a = word_at(byte + 6u);
    let b = word_at(byte + 10u);
    let c = word_at(byte + 14u);
    let e = word_at(byte + 18u);
    return Block(
        quad(d, a, high), quad(d, b, high >> 4u), quad(d, c, high >> 8u), quad(d, e, high >> 12u),
        quad(d, a >> 4u, high >> 16u), quad(d, b >> 4u, high >> 20u),
        quad(d, c >> 4u, high >> 24u), quad(d, e >> 4u, high >> 28u),
    );
}
