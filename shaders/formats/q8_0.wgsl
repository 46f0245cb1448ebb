// Q8_0: w = d * q. 34 bytes a block: d (half), then 32 signed bytes.

fn quad(d: f32, byte: u32) -> vec4<f32> {
    return d * vec4<f32>(unpack4xI8(word_at(byte)));
}

fn decode(block: u32) -> Block {
    let byte = block * 34u;
    let d = half_at(byte);
    return Block(
        quad(d, byte + 2u), quad(d, byte + 6u), quad(d, byte + 10u), quad(d, byte + 14u),
        quad(d, byte + 18u), quad(d, byte + 22u), quad(d, byte + 26u), quad(d, byte + 30u),
    );
}
