// Some numbers of x are dropped, the others grow by what that takes away; which are, follows from a seed, so that the
// backward pass drops the same. One lane takes four channels.

struct Params {
    vectors: u32, // vec4 of a row
    stride: u32,  // of a token, in vec4
    salt: u32,    // another for every place in the model
    most: u32,    // random words below it are dropped
    scale: f32,   // 1 / (1 - probability)
    adds: u32,    // 1: to what y holds
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> seed: array<u32>;          // [1], another for every pass
@group(0) @binding(3) var<storage, read> x: array<vec4<f32>>;       // [T, cols]
@group(0) @binding(4) var<storage, read_write> y: array<vec4<f32>>; // [T, cols]

// A random word: the PCG output function, once for each number that goes in.
fn mixed(word: u32) -> u32 {
    let state = word * 747796405u + 2891336453u;
    let turned_word = ((state >> ((state >> 28u) + 4u)) ^ state) * 277803737u;
    return (turned_word >> 22u) ^ turned_word;
}

fn kept(word: u32) -> f32 {
    return select(params.scale, 0.0, word < params.most);
}

@compute @workgroup_size(64)
fn dropout(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.vectors) {
        return;
    }
    let at = id.z * params.stride + id.x;
    let a = mixed(mixed(mixed(mixed(seed[0]) ^ params.salt) ^ id.z) ^ id.x);
    let b = mixed(a);
    let c = mixed(b);
    let v = x[at] * vec4<f32>(kept(a), kept(b), kept(c), kept(mixed(c)));
    if (params.adds != 0u) {
        y[at] += v;
    } else {
        y[at] = v;
    }
}
