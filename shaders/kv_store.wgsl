// Writes the keys and values of this pass into the cache, in the cache's element type.

struct Params {
    vectors: u32, // vec4 a token: KV * D / 4
    stride: u32,  // of a token in k and v, in vec4
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> k: array<vec4<f32>>;         // [T, KV, D]
@group(0) @binding(3) var<storage, read> v: array<vec4<f32>>;         // [T, KV, D]
@group(0) @binding(4) var<storage, read_write> k_cache: array<Kv4>;   // [context, KV, D]
@group(0) @binding(5) var<storage, read_write> v_cache: array<Kv4>;   // [context, KV, D]

@compute @workgroup_size(64)
fn kv_store(@builtin(global_invocation_id) id: vec3<u32>) {
    if (id.x >= params.vectors) {
        return;
    }
    let from = id.z * params.stride + id.x;
    let to = (frame.position + id.z) * params.vectors + id.x;
    k_cache[to] = kv_pack(k[from]);
    v_cache[to] = kv_pack(v[from]);
}
