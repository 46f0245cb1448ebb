// Joins what attention left of each split of the keys: y = sum of the parts, each weighed with exp(its largest score -
// the largest of all), over the total weighed likewise. One lane takes four channels of a head.

struct Params {
    heads: u32,    // H
    vectors: u32,  // D / 4
    split: u32,    // keys of a part
    splits: u32,   // that the parts have room for
    y_stride: u32, // of a token, in vec4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> parts: array<vec4<f32>>;   // [T, H, splits, D / 4 + 1]: sums; largest score, total
@group(0) @binding(3) var<storage, read_write> y: array<vec4<f32>>; // [T, H, D]

@compute @workgroup_size(64)
fn attention_merge(@builtin(global_invocation_id) id: vec3<u32>) {
    let n = params.vectors;
    if (id.x >= params.heads * n) {
        return;
    }
    let head = id.x / n;
    let vector = id.x % n;
    let token = id.z;
    let first = (token * params.heads + head) * params.splits * (n + 1u);
    let splits = (frame.position + token) / params.split + 1u; // that have a key for this token
    var most = parts[first + n].x;
    for (var s = 1u; s < splits; s++) {
        most = max(most, parts[first + s * (n + 1u) + n].x);
    }
    var total = 0.0;
    var sum = vec4<f32>();
    for (var s = 0u; s < splits; s++) {
        let i = first + s * (n + 1u);
        let own = parts[i + n];
        let weight = exp(own.x - most);
        total += weight * own.y;
        sum += weight * parts[i + vector];
    }
    y[token * params.y_stride + head * n + vector] = sum / total;
}
