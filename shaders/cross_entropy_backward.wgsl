// dlogits = (probability - 1 at the label) dy, in the place of the logits of a shard; zero where the label is ignored.

struct Params {
    cols: u32,   // logits of this shard
    first: u32,  // id of its first
    stride: u32, // of a token in logits, in floats
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> labels: array<u32>;       // [T]
@group(0) @binding(3) var<storage, read> dy: array<f32>;           // [T]
@group(0) @binding(4) var<storage, read> seen: array<vec4<f32>>;   // [T]: of cross_entropy.wgsl
@group(0) @binding(5) var<storage, read_write> logits: array<f32>; // [T, cols]

@compute @workgroup_size(64)
fn cross_entropy_backward(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.cols) {
        return;
    }
    let token = id.z;
    let label = labels[token];
    let weight = select(dy[token], 0.0, label == 0xffffffffu);
    let i = token * params.stride + id.x;
    let p = exp(max(logits[i] - seen[token].x, -80.0)) / seen[token].y;
    logits[i] = weight * (p - select(0.0, 1.0, label == params.first + id.x));
}
