// Sums of gradients, which stay in dqkv between one turn and the next: for attention_dq_lane.wgsl and
// attention_dkv_lane.wgsl.

fn sums_at_row(at: u32, begins: bool) -> Eight {
    if (begins) {
        return Eight();
    }
    return Eight(
        dqkv[at], dqkv[at + 1u], dqkv[at + 2u], dqkv[at + 3u], dqkv[at + 4u], dqkv[at + 5u], dqkv[at + 6u], dqkv[at + 7u],
    );
}

fn put_gradient(at: u32, s: Eight) {
    dqkv[at] = s.v0; dqkv[at + 1u] = s.v1; dqkv[at + 2u] = s.v2; dqkv[at + 3u] = s.v3;
    dqkv[at + 4u] = s.v4; dqkv[at + 5u] = s.v5; dqkv[at + 6u] = s.v6; dqkv[at + 7u] = s.v7;
}
