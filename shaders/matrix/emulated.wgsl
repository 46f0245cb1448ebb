// 8 x 8 matrices without hardware for them, by 32 lanes that count as a subgroup: so that matmul_matrix can be tested on every
// device. Not made for speed. matrix/float8.wgsl and matrix/subgroup.wgsl define the same names.

const SIZE: u32 = 8u;

alias Number = f32;
alias MatrixA = u32;       // where it begins in the tile of W
alias MatrixB = u32;       // where it begins in the tile of x
alias MatrixC = vec2<f32>; // two rows of one token

struct Member {
    @builtin(local_invocation_index) index: u32,
}

fn subgroup_of(member: Member) -> u32 {
    return member.index / 32u;
}

fn number(v: f32) -> Number {
    return v;
}

// Where a lane's part of C lies from the matrix's first element on.
fn own_c(member: Member) -> u32 {
    let lane = member.index % 32u;
    return lane / 4u * TILE + lane % 4u * 2u;
}

fn load_a(at: u32, member: Member) -> MatrixA {
    return at;
}

fn load_b(at: u32, member: Member) -> MatrixB {
    return at;
}

fn load_c(at: u32, member: Member) -> MatrixC {
    let i = at + own_c(member);
    return vec2<f32>(y_tile[i], y_tile[i + 1u]);
}

fn multiply_add(a: MatrixA, b: MatrixB, c: MatrixC, member: Member) -> MatrixC {
    let lane = member.index % 32u;
    let row = a + lane % 4u * 2u * STRIDE;
    let token = b + lane / 4u * STRIDE;
    var sum = c;
    for (var k = 0u; k < SIZE; k++) {
        sum += vec2<f32>(w_tile[row + k], w_tile[row + STRIDE + k]) * x_tile[token + k];
    }
    return sum;
}

fn store_c(c: MatrixC, at: u32, member: Member) {
    let i = at + own_c(member);
    y_tile[i] = c.x;
    y_tile[i + 1u] = c.y;
}
