// The product of two matrices on hardware that multiplies small ones (matrix/): 128 lanes, which are four subgroups, share a tile
// of A and one of B, 32 along their common dimension at a time; each subgroup has two by two small matrices of results.
// What A, B and the results are, a file of product/ decides: y = W x, or one of its two backward passes.
// matmul.wgsl, matmul_dx.wgsl and matmul_dw.wgsl are the versions for devices without such hardware.

const TILE: u32 = 4u * SIZE; // rows of A, and columns of B, of a workgroup
const STRIDE: u32 = 40u;     // from row to row of a tile: 32, and 8 so that neighbouring rows meet different banks

var<workgroup> a_tile: array<Number, TILE * STRIDE>; // [rows, 32]
var<workgroup> b_tile: array<Number, TILE * STRIDE>; // [columns, 32]
var<workgroup> c_tile: array<f32, TILE * TILE>;      // [columns, rows]

// Four numbers of A, `step` apart in its tile.
fn put_a(at: u32, v: vec4<f32>, step: u32) {
    a_tile[at] = number(v.x);
    a_tile[at + step] = number(v.y);
    a_tile[at + 2u * step] = number(v.z);
    a_tile[at + 3u * step] = number(v.w);
}

@compute @workgroup_size(128)
fn matmul_matrix(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    member: Member,
) {
    let first = place(group, groups);
    if (outside(first)) { // uniform: the whole workgroup leaves
        return;
    }
    let lane = member.index;
    for (var i = lane; i < TILE * TILE; i += 128u) {
        c_tile[i] = 0.0;
    }
    workgroupBarrier();
    let scale = prepare(lane);
    let rows = (subgroup_of(member) & 1u) * 2u * SIZE;           // this subgroup's, from the tile's first on
    let columns = ((subgroup_of(member) >> 1u) & 1u) * 2u * SIZE;
    let c = columns * TILE + rows;
    var c00 = load_c(c, member);
    var c10 = load_c(c + SIZE, member);
    var c01 = load_c(c + SIZE * TILE, member);
    var c11 = load_c(c + SIZE * TILE + SIZE, member);

    for (var step = 0u; step < steps(); step++) {
        fill(first, step, scale, lane);
        workgroupBarrier();
        for (var k = 0u; k < 32u; k += SIZE) {
            let a0 = load_a(rows * STRIDE + k, member);
            let a1 = load_a((rows + SIZE) * STRIDE + k, member);
            let b0 = load_b(columns * STRIDE + k, member);
            let b1 = load_b((columns + SIZE) * STRIDE + k, member);
            c00 = multiply_add(a0, b0, c00, member);
            c10 = multiply_add(a1, b0, c10, member);
            c01 = multiply_add(a0, b1, c01, member);
            c11 = multiply_add(a1, b1, c11, member);
        }
        workgroupBarrier();
    }

    store_c(c00, c, member);
    store_c(c10, c + SIZE, member);
    store_c(c01, c + SIZE * TILE, member);
    store_c(c11, c + SIZE * TILE + SIZE, member);
    workgroupBarrier();
    for (var i = lane; i < TILE * TILE / 4u; i += 128u) {
        let column = i / SIZE;      // a column's rows are SIZE vec4
        let row = i % SIZE * 4u;
        let at = column * TILE + row;
        let sums = vec4<f32>(c_tile[at], c_tile[at + 1u], c_tile[at + 2u], c_tile[at + 3u]);
        put_four(first.x + row, first.y + column, sums, scale);
    }
}
