// What a whole subgroup does together with the matrices of matrix/half16.wgsl or matrix/float8.wgsl.
// matrix/emulated.wgsl defines the same names.

struct Member {
    @builtin(local_invocation_index) index: u32,
    @builtin(subgroup_id) subgroup: u32,
}

fn subgroup_of(member: Member) -> u32 {
    return member.subgroup;
}

// A [rows, 32] from its tile.
fn load_a(at: u32, member: Member) -> MatrixA {
    return coopLoadT<MatrixA>(&a_tile[at], STRIDE);
}

// B [32, columns] from its tile, whose rows are columns.
fn load_b(at: u32, member: Member) -> MatrixB {
    return coopLoad<MatrixB>(&b_tile[at], STRIDE);
}

// C [rows, columns] from its tile, whose rows are columns.
fn load_c(at: u32, member: Member) -> MatrixC {
    return coopLoad<MatrixC>(&c_tile[at], TILE);
}

fn multiply_add(a: MatrixA, b: MatrixB, c: MatrixC, member: Member) -> MatrixC {
    return coopMultiplyAdd(a, b, c);
}

fn store_c(c: MatrixC, at: u32, member: Member) {
    coopStore(c, &c_tile[at], TILE);
}
