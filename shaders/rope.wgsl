// Rotary position embedding, in place: each pair of channels turns by position * frequency.
// The angles come from a table made in f64 on the CPU, so scaling, factors and magnitude are already in it.

struct Params {
    heads: u32,     // H or KV
    head_size: u32, // D
    pairs: u32,     // rotated pairs a head; channels beyond 2 * pairs stay as they are
    stride: u32,    // of a token, in floats
    halves: u32,    // 1: pair i is channels (i, i + pairs), as Qwen; 0: (2i, 2i + 1), as GGUF llama
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> angles: array<vec2<f32>>; // [context, pairs]: (cos, sin)
@group(0) @binding(3) var<storage, read_write> x: array<f32>;      // [T, heads, D]

@compute @workgroup_size(64)
fn rope(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.heads * params.pairs) {
        return;
    }
    let head = id.x / params.pairs;
    let pair = id.x % params.pairs;
    let row = id.z * params.stride + head * params.head_size;
    let a = row + select(2u * pair, pair, params.halves == 1u);
    let b = a + select(1u, params.pairs, params.halves == 1u);
    let turn = angles[(frame.position + id.z) * params.pairs + pair];
    let xa = x[a];
    let xb = x[b];
    x[a] = xa * turn.x - xb * turn.y;
    x[b] = xa * turn.y + xb * turn.x;
}
