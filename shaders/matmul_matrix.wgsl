// y[t] = W x[t] for many tokens on hardware that multiplies small matrices (matrix/): 128 lanes, which are four subgroups,
// share a tile of W and one of x, 32 along K at a time; each subgroup has two by two matrices of results.
// matmul.wgsl is the version for devices without such hardware.

const TILE: u32 = 4u * SIZE; // rows, and tokens, of a workgroup
const STRIDE: u32 = 40u;     // from row to row of a tile: 32, and 8 so that neighbouring rows meet different banks

var<workgroup> w_tile: array<Number, TILE * STRIDE>; // [rows, 32 along K]
var<workgroup> x_tile: array<Number, TILE * STRIDE>; // [tokens, 32 along K]
var<workgroup> y_tile: array<f32, TILE * TILE>;      // [tokens, rows]

fn put_w(at: u32, v: vec4<f32>) {
    w_tile[at] = number(v.x);
    w_tile[at + 1u] = number(v.y);
    w_tile[at + 2u] = number(v.z);
    w_tile[at + 3u] = number(v.w);
}

fn put_x(at: u32, v: vec4<f32>) {
    x_tile[at] = number(v.x);
    x_tile[at + 1u] = number(v.y);
    x_tile[at + 2u] = number(v.z);
    x_tile[at + 3u] = number(v.w);
}

@compute @workgroup_size(128)
fn matmul_matrix(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    member: Member,
) {
    let first_row = group_index(group, groups) * TILE;
    if (first_row >= params.rows) { // uniform: the whole workgroup leaves
        return;
    }
    let first_token = group.z * TILE;
    let lane = member.index;
    for (var i = lane; i < TILE * TILE; i += 128u) {
        y_tile[i] = 0.0;
    }
    workgroupBarrier();
    let rows = (subgroup_of(member) & 1u) * 2u * SIZE;          // this subgroup's, from the tile's first on
    let tokens = ((subgroup_of(member) >> 1u) & 1u) * 2u * SIZE;
    let y = tokens * TILE + rows;
    var c00 = load_c(y, member);
    var c10 = load_c(y + SIZE, member);
    var c01 = load_c(y + SIZE * TILE, member);
    var c11 = load_c(y + SIZE * TILE + SIZE, member);

    for (var b = 0u; b < params.blocks; b++) {
        if (lane < TILE) {
            let w = decode(first_block(min(first_row + lane, params.rows - 1u)) + b * BLOCK_STEP);
            let at = lane * STRIDE;
            put_w(at, w.w0 * w.scale.x + w.offset);
            put_w(at + 4u, w.w1 * w.scale.x + w.offset);
            put_w(at + 8u, w.w2 * w.scale.x + w.offset);
            put_w(at + 12u, w.w3 * w.scale.x + w.offset);
            put_w(at + 16u, w.w4 * w.scale.y + w.offset);
            put_w(at + 20u, w.w5 * w.scale.y + w.offset);
            put_w(at + 24u, w.w6 * w.scale.y + w.offset);
            put_w(at + 28u, w.w7 * w.scale.y + w.offset);
        } else if (lane < 2u * TILE) {
            let token = lane - TILE;
            let i = min(first_token + token, frame.tokens - 1u) * params.x_stride + b * 8u;
            for (var k = 0u; k < 8u; k++) {
                put_x(token * STRIDE + k * 4u, x[i + k]);
            }
        }
        workgroupBarrier();
        for (var k = 0u; k < 32u; k += SIZE) {
            let a0 = load_a(rows * STRIDE + k, member);
            let a1 = load_a((rows + SIZE) * STRIDE + k, member);
            let b0 = load_b(tokens * STRIDE + k, member);
            let b1 = load_b((tokens + SIZE) * STRIDE + k, member);
            c00 = multiply_add(a0, b0, c00, member);
            c10 = multiply_add(a1, b0, c10, member);
            c01 = multiply_add(a0, b1, c01, member);
            c11 = multiply_add(a1, b1, c11, member);
        }
        workgroupBarrier();
    }

    store_c(c00, y, member);
    store_c(c10, y + SIZE, member);
    store_c(c01, y + SIZE * TILE, member);
    store_c(c11, y + SIZE * TILE + SIZE, member);
    workgroupBarrier();
    for (var i = lane; i < TILE * TILE / 4u; i += 128u) {
        let token = i / SIZE;      // a token's rows are SIZE vec4
        let row = i % SIZE * 4u;
        if (first_token + token < frame.tokens) {
            let at = token * TILE + row;
            let sums = vec4<f32>(y_tile[at], y_tile[at + 1u], y_tile[at + 2u], y_tile[at + 3u]);
            finish(0u, first_token + token, first_row + row, sums);
        }
    }
}
