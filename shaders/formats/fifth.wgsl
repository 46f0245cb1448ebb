// The fifth bits of Q5_0 and Q5_1.

// Bits 0 to 3 of `bits`, each moved to bit 4 of a byte of its own.
fn fifth(bits: u32) -> u32 {
    return ((bits & 1u) << 4u) | ((bits & 2u) << 11u) | ((bits & 4u) << 18u) | ((bits & 8u) << 25u);
}
