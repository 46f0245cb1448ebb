// What every weight format decodes to: one block of a row. Longer rows are whole blocks; super-blocks of 256 are eight.

// 32 weights in order: w0 holds 0 to 3, w7 holds 28 to 31. A weight is w * scale + offset, with scale.x for the first
// sixteen and scale.y for the rest: a dot product applies scale and offset once a block instead of once a weight.
struct Block {
    w0: vec4<f32>, w1: vec4<f32>, w2: vec4<f32>, w3: vec4<f32>,
    w4: vec4<f32>, w5: vec4<f32>, w6: vec4<f32>, w7: vec4<f32>,
    scale: vec2<f32>,
    offset: f32,
}
