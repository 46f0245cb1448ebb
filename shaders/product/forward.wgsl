// y[t] = W x[t] as matmul_matrix.wgsl computes it: A is W, B is x. The other files of product/ define the same names.

// The tile's first row of A and first token.
fn place(group: vec3<u32>, groups: vec3<u32>) -> vec2<u32> {
    return vec2<u32>(group_index(group, groups), group.z) * TILE;
}

fn outside(place: vec2<u32>) -> bool {
    return place.x >= params.rows;
}

// How often the tiles are filled.
fn steps() -> u32 {
    return params.blocks;
}

fn prepare(lane: u32) -> f32 {
    return 1.0;
}

fn fill(place: vec2<u32>, step: u32, scale: f32, lane: u32) {
    if (lane < TILE) {
        let w = decode(first_block(min(place.x + lane, params.rows - 1u)) + step * BLOCK_STEP);
        let at = lane * STRIDE;
        put_a(at, w.w0 * w.scale.x + w.offset, 1u);
        put_a(at + 4u, w.w1 * w.scale.x + w.offset, 1u);
        put_a(at + 8u, w.w2 * w.scale.x + w.offset, 1u);
        put_a(at + 12u, w.w3 * w.scale.x + w.offset, 1u);
        put_a(at + 16u, w.w4 * w.scale.y + w.offset, 1u);
        put_a(at + 20u, w.w5 * w.scale.y + w.offset, 1u);
        put_a(at + 24u, w.w6 * w.scale.y + w.offset, 1u);
        put_a(at + 28u, w.w7 * w.scale.y + w.offset, 1u);
    } else if (lane < 2u * TILE) {
        let token = lane - TILE;
        let i = min(place.y + token, frame.tokens - 1u) * params.x_stride + step * 8u;
        for (var k = 0u; k < 8u; k++) {
            let v = x[i + k];
            let at = token * STRIDE + k * 4u;
            b_tile[at] = number(v.x);
            b_tile[at + 1u] = number(v.y);
            b_tile[at + 2u] = number(v.z);
            b_tile[at + 3u] = number(v.w);
        }
    }
}

// Four results of a column of B, which is a token, from row `row` of A on.
fn put_four(row: u32, token: u32, sums: vec4<f32>, scale: f32) {
    if (token < frame.tokens) {
        finish(0u, token, row, sums);
    }
}
