// A quantized tensor as words, and reads that need not begin on one.

@group(0) @binding(2) var<storage, read> weights: array<u32>; // the tensor's bytes as they lie in the file

// The four bytes from `byte` on, which must be even: blocks of 18, 22, 34 or 210 bytes begin between words.
fn word_at(byte: u32) -> u32 {
    let i = byte >> 2u;
    let low = weights[i];
    return select(low, (low >> 16u) | (weights[i + 1u] << 16u), (byte & 2u) != 0u);
}

// The half at `byte`, which must be even.
fn half_at(byte: u32) -> f32 {
    let pair = unpack2x16float(weights[byte >> 2u]);
    return select(pair.x, pair.y, (byte & 2u) != 0u);
}
