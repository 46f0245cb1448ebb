// What the kernels of causal grouped-query attention take: attention, attention_tile, attention_lane, attention_token. They go
// once over the keys, a workgroup over `split` of them; where there are more, attention_merge joins the parts.

const MASKED: f32 = -1e30;

struct Params {
    group: u32,     // query heads that share a kv head
    kv_heads: u32,  // KV
    context: u32,   // keys of a kv head that the cache has room for
    vectors: u32,   // D / 4
    q_stride: u32,  // of a token in q and y, in vec4
    split: u32,     // keys of a workgroup
    splits: u32,    // that the parts have room for
    scale: f32,     // 1 / sqrt(D)
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> q: array<vec4<f32>>;           // [T, H, D]
@group(0) @binding(3) var<storage, read> k_cache: array<Kv4>;           // [KV, context, D], as kv/ tells
@group(0) @binding(4) var<storage, read> v_cache: array<Kv4>;           // [KV, context, D], as kv/ tells
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>;     // [T, H, D]
@group(0) @binding(6) var<storage, read_write> parts: array<vec4<f32>>; // [T, H, splits, D / 4 + 1]: sums; largest score, total

// Where a key or value of a kv head begins in the cache, in vec4.
fn row_of(kv_head: u32, key: u32) -> u32 {
    return (kv_head * params.context + key) * params.vectors;
}

// Whether the keys of this pass are one workgroup's, so that it writes y itself.
fn is_whole() -> bool {
    return frame.position + frame.tokens <= params.split;
}

// Where the part of a head of a token begins.
fn part_at(token: u32, head: u32, split: u32) -> u32 {
    return ((token * params.group * params.kv_heads + head) * params.splits + split) * (params.vectors + 1u);
}
