// Attention over whole sequences for processors that emulate a GPU: what its kernels share. Heads are of whole blocks of 32
// channels. The eight lanes of a workgroup have eight queries (or keys) of one kv head; together they go over the keys (or
// queries), some at a time. The sums stay in memory meanwhile (see attention_lane.wgsl).

@group(0) @binding(3) var<storage, read> qkv: array<vec4<f32>>; // [T, H + KV + KV, D], turned

fn key_at(i: u32) -> vec4<f32> {
    return qkv[i];
}

// Where a head begins in qkv: queries' come first, then keys', then values'.
fn head_at(token: u32, head: u32) -> u32 {
    return token * (params.qkv_stride / 4u) + head * (params.head_size / 4u);
}

// The same of four keys or values in order; those past the end repeat the last.
fn heads4(token: u32, end: u32, head: u32) -> vec4<u32> {
    let tokens = min(vec4<u32>(token, token + 1u, token + 2u, token + 3u), vec4<u32>(end - 1u));
    return tokens * (params.qkv_stride / 4u) + head * (params.head_size / 4u);
}

// Which of four keys in order a query sees.
fn seen4(key: u32, first: u32, last: u32) -> vec4<bool> {
    let keys = vec4<u32>(key, key + 1u, key + 2u, key + 3u);
    return (keys >= vec4<u32>(first)) & (keys <= vec4<u32>(last));
}

// A lane's query.
struct Query {
    is_own: bool, // lanes past the end repeat the last query; they store nothing
    token: u32,
    head: u32,
    row: u32, // where it begins in qkv
    at: u32,  // in y and dy
}

fn queries_each() -> u32 {
    return params.heads / params.kv_heads; // of a token, on one kv head
}

fn query_of(group: vec3<u32>, lane: u32) -> Query {
    let queries = frame.tokens * queries_each();
    let number = min(group.z * 8u + lane, queries - 1u);
    let token = number / queries_each();
    let head = group.x * queries_each() + number % queries_each();
    let at = token * (params.y_stride / 4u) + head * (params.head_size / 4u);
    return Query(group.z * 8u + lane < queries, token, head, head_at(token, head), at);
}

// The keys that the queries of a workgroup see: from the first on, and before the last.
fn first_key(group: vec3<u32>) -> u32 {
    return bounds[group.z * 8u / queries_each()].x;
}

fn past_keys(group: vec3<u32>) -> u32 {
    return min(group.z * 8u + 7u, frame.tokens * queries_each() - 1u) / queries_each() + 1u;
}

// A lane's own 32 channels.
fn own_at(i: u32) -> Eight {
    return Eight(qkv[i], qkv[i + 1u], qkv[i + 2u], qkv[i + 3u], qkv[i + 4u], qkv[i + 5u], qkv[i + 6u], qkv[i + 7u]);
}

// The lane's own times those of four rows, which all lanes want.
fn key_dots(own: Eight, rows: vec4<u32>, i: u32, lane: Lane) -> vec4<f32> {
    return vec4<f32>(
        dot8(own, keys_at(rows.x + i, lane)), dot8(own, keys_at(rows.y + i, lane)),
        dot8(own, keys_at(rows.z + i, lane)), dot8(own, keys_at(rows.w + i, lane)),
    );
}

fn value_dots(own: Eight, rows: vec4<u32>, i: u32, lane: Lane) -> vec4<f32> {
    return vec4<f32>(
        dot8(own, values_at(rows.x + i, lane)), dot8(own, values_at(rows.y + i, lane)),
        dot8(own, values_at(rows.z + i, lane)), dot8(own, values_at(rows.w + i, lane)),
    );
}

// Four rows, weighed, are added.
fn plus_keys(sum: Eight, p: vec4<f32>, rows: vec4<u32>, i: u32, lane: Lane) -> Eight {
    let two = add8(add8(sum, p.x, keys_at(rows.x + i, lane)), p.y, keys_at(rows.y + i, lane));
    return add8(add8(two, p.z, keys_at(rows.z + i, lane)), p.w, keys_at(rows.w + i, lane));
}

fn plus_values(sum: Eight, p: vec4<f32>, rows: vec4<u32>, i: u32, lane: Lane) -> Eight {
    let two = add8(add8(sum, p.x, values_at(rows.x + i, lane)), p.y, values_at(rows.y + i, lane));
    return add8(add8(two, p.z, values_at(rows.z + i, lane)), p.w, values_at(rows.w + i, lane));
}
