// What every weight format decodes to: one block of a row. Longer rows are whole blocks; super-blocks of 256 are eight.

// The 32 weights of a block, in order: w0 holds weights 0 to 3, w7 holds 28 to 31.
struct Block {
    w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>,
    w4: vec4<f32>, w5: vec4<f32>, w6: vec4<f32>, w7: vec4<f32>,
}
