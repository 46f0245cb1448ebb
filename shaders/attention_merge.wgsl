// Joins the parts that attention left: one lane takes four channels of a head (attend/joined.wgsl).

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
    if (id.x < params.heads * n) {
        y[id.z * params.y_stride + id.x] = joined(id.z, id.x / n, id.x % n);
    }
}
