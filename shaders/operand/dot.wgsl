// The dot product of f32 operands.

fn with_sum(x: X) -> X {
    let all = x.v0 + x.v1 + x.v2 + x.v3 + x.v4 + x.v5 + x.v6 + x.v7;
    return X(x.v0, x.v1, x.v2, x.v3, x.v4, x.v5, x.v6, x.v7, all.x + all.y + all.z + all.w);
}

fn block_dot(w: W, x: X) -> f32 {
    let first = w.w0 * x.v0 + w.w1 * x.v1 + w.w2 * x.v2 + w.w3 * x.v3;
    let second = w.w4 * x.v4 + w.w5 * x.v5 + w.w6 * x.v6 + w.w7 * x.v7;
    let all = w.scale.x * first + w.scale.y * second;
    return (all.x + all.y) + (all.z + all.w) + w.offset * x.sum;
}
