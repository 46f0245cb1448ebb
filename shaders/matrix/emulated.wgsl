// 8 x 8 matrices without hardware for them, by 32 lanes that count as a subgroup: so that matmul_matrix can be tested on every
// device. Not made for speed. matrix/single.wgsl or matrix/rounded.wgsl says what a number is. matrix/float8.wgsl and
// matrix/subgroup.wgsl define the same names.

const SIZE: u32 = 8u;

alias MatrixA = u32;       // where it begins in the tile of A
alias MatrixB = u32;       // where it begins in the tile of B
alias MatrixC = vec2<f32>; // two rows of one column

struct Member {
    @builtin(local_invocation_index) index: u32,
}

fn subgroup_of(member: Member) -> u32 {
    return member.index / 32u;
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
    return vec2<f32>(c_tile[i], c_tile[i + 1u]);
}

fn multiply_add(a: MatrixA, b: MatrixB, c: MatrixC, member: Member) -> MatrixC {
    let lane = member.index % 32u;
    let row = a + lane % 4u * 2u * STRIDE;
    let token = b + lane / 4u * STRIDE;
    var sum = c;
    for (var k = 0u; k < SIZE; k++) {
        sum += vec2<f32>(a_tile[row + k], a_tile[row + STRIDE + k]) * b_tile[token + k];
    }
    return sum;
}

fn store_c(c: MatrixC, at: u32, member: Member) {
    let i = at + own_c(member);
    c_tile[i] = c.x;
    c_tile[i + 1u] = c.y;
}
