// dx[t] = dy[t] W as matmul_matrix.wgsl computes it: A is W with its channels as rows, B is dy, scaled token by token
// (row_scale.wgsl). The other files of product/ define the same names.

@group(0) @binding(5) var<storage, read> row_scales: array<f32>; // [T], powers of two

// The tile's first channel and first token.
fn place(group: vec3<u32>, groups: vec3<u32>) -> vec2<u32> {
    return vec2<u32>(group_index(group, groups), group.z) * TILE;
}

fn outside(place: vec2<u32>) -> bool {
    return place.x >= params.blocks * 32u;
}

// How often the tiles are filled.
fn steps() -> u32 {
    return (params.rows + 31u) / 32u;
}

fn prepare(lane: u32) -> f32 {
    return 1.0;
}

fn fill(place: vec2<u32>, step: u32, scale: f32, lane: u32) {
    let first_row = step * 32u;
    if (lane < TILE) {
        // one block of one row of W: neighbouring lanes have neighbouring blocks; rows past the end meet a dy of zero
        let row = lane / (TILE / 32u);
        let channel = lane % (TILE / 32u) * 32u;
        let block = min(place.x / 32u + channel / 32u, params.blocks - 1u);
        let w = decode(first_block(min(first_row + row, params.rows - 1u)) + block * BLOCK_STEP);
        let at = channel * STRIDE + row;
        put_a(at, w.w0 * w.scale.x + w.offset, STRIDE);
        put_a(at + 4u * STRIDE, w.w1 * w.scale.x + w.offset, STRIDE);
        put_a(at + 8u * STRIDE, w.w2 * w.scale.x + w.offset, STRIDE);
        put_a(at + 12u * STRIDE, w.w3 * w.scale.x + w.offset, STRIDE);
        put_a(at + 16u * STRIDE, w.w4 * w.scale.y + w.offset, STRIDE);
        put_a(at + 20u * STRIDE, w.w5 * w.scale.y + w.offset, STRIDE);
        put_a(at + 24u * STRIDE, w.w6 * w.scale.y + w.offset, STRIDE);
        put_a(at + 28u * STRIDE, w.w7 * w.scale.y + w.offset, STRIDE);
    } else if (lane < 2u * TILE) {
        let token = place.y + lane - TILE;
        let scale = row_scales[min(token, frame.tokens - 1u)];
        for (var row = 0u; row < 32u; row++) {
            b_tile[(lane - TILE) * STRIDE + row] = number(dy_at(token, first_row + row) * scale);
        }
    }
}

// Four channels of a token.
fn put_four(channel: u32, token: u32, sums: vec4<f32>, scale: f32) {
    put(token, channel / 4u, sums / row_scales[min(token, frame.tokens - 1u)]);
}
