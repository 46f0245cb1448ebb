// dW = dyᵀ x as matmul_matrix.wgsl computes it: A is x with its channels as rows, B is dy with the rows of W as columns, scaled as
// the token with the largest gradients asks for (row_scale.wgsl). The other files of product/ define the same names.

@group(0) @binding(4) var<storage, read> row_scales: array<f32>; // [T], powers of two

var<workgroup> least: array<f32, 128>;

// The tile's first channel and first row of W.
fn place(group: vec3<u32>, groups: vec3<u32>) -> vec2<u32> {
    let tile = group_index(group, groups);
    return vec2<u32>(tile % params.columns, tile / params.columns) * TILE;
}

fn outside(place: vec2<u32>) -> bool {
    return place.y >= params.rows;
}

// How often the tiles are filled.
fn steps() -> u32 {
    return (frame.tokens + 31u) / 32u;
}

// The least of all tokens' scales.
fn prepare(lane: u32) -> f32 {
    var own = row_scales[min(lane, frame.tokens - 1u)];
    for (var t = lane + 128u; t < frame.tokens; t += 128u) {
        own = min(own, row_scales[t]);
    }
    least[lane] = own;
    workgroupBarrier();
    for (var half = 64u; half > 0u; half >>= 1u) {
        if (lane < half) {
            least[lane] = min(least[lane], least[lane + half]);
        }
        workgroupBarrier();
    }
    return least[0];
}

fn fill(place: vec2<u32>, step: u32, scale: f32, lane: u32) {
    let first_token = step * 32u;
    if (lane < TILE) {
        for (var j = lane; j < TILE * 8u; j += TILE) { // neighbouring lanes have neighbouring channels
            let token = j / (TILE / 4u);
            let vector = j % (TILE / 4u);
            let t = min(first_token + token, frame.tokens - 1u); // past the last one dy is zero
            let v = x[t * params.x_stride + min(place.x / 4u + vector, params.vectors - 1u)];
            put_a(vector * 4u * STRIDE + token, v, STRIDE);
        }
    } else if (lane < 2u * TILE) {
        let row = lane - TILE;
        for (var token = 0u; token < 32u; token++) {
            b_tile[row * STRIDE + token] = number(dy_of(first_token + token, place.y + row) * scale);
        }
    }
}

// Four channels of a row of W.
fn put_four(channel: u32, row: u32, sums: vec4<f32>, scale: f32) {
    put_row(row, channel / 4u, sums / scale);
}
