// What a whole subgroup does together with the matrices of matrix/half16.wgsl or matrix/float8.wgsl.
// matrix/emulated.wgsl defines the same names.

struct Member {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
}

fn subgroup_of(member: Member) -> u32 {
    return member.subgroup;
}

// A [rows, along K] from the tile of W.
fn load_a(at: u32, member: Member) -> MatrixA {
    return coopLoadT<MatrixA>(&w_tile[at], STRIDE);
}

// B [along K, tokens] from the tile of x, whose rows are tokens.
fn load_b(at: u32, member: Member) -> MatrixB {
    return coopLoad<MatrixB>(&x_tile[at], STRIDE);
}

// C [rows, tokens] from the tile of y, whose rows are tokens.
fn load_c(at: u32, member: Member) -> MatrixC {
    return coopLoad<MatrixC>(&y_tile[at], TILE);
}

fn multiply_add(a: MatrixA, b: MatrixB, c: MatrixC, member: Member) -> MatrixC {
    return coopMultiplyAdd(a, b, c);
}

fn store_c(c: MatrixC, at: u32, member: Member) {
    coopStore(c, &y_tile[at], TILE);
}
