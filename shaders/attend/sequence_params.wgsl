// Attention over whole sequences that lie one after another, for training: what its forward and backward kernels share.
// A token sees its own sequence up to itself. Heads lie in qkv as the projection leaves them: queries, keys, values.

struct Params {
    heads: u32,      // H
    kv_heads: u32,   // KV
    head_size: u32,  // D, at most 256
    qkv_stride: u32, // of a token in qkv and dqkv, in floats
    y_stride: u32,   // of a token in y and dy, in floats
    scale: f32,      // 1 / sqrt(D)
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> bounds: array<vec2<u32>>; // [T]: first token of its sequence, first past it
