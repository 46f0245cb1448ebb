// Integer dot products of four bytes without memory, to measure the device's arithmetic with bytes.
// Eight chains a lane, so that no product waits for the one before.

struct Params {
    rounds: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> y: array<u32>; // [lanes]

@compute @workgroup_size(64)
fn dot_bytes(@builtin(global_invocation_id) id: vec3<u32>) {
    let m = 0x01020304u + id.x;
    var a = i32(id.x);
    var b = a + 1;
    var c = a + 2;
    var d = a + 3;
    var e = a + 4;
    var f = a + 5;
    var g = a + 6;
    var h = a + 7;
    for (var n = 0u; n < params.rounds; n++) {
        a += dot4I8Packed(u32(a), m);
        b += dot4I8Packed(u32(b), m);
        c += dot4I8Packed(u32(c), m);
        d += dot4I8Packed(u32(d), m);
        e += dot4I8Packed(u32(e), m);
        f += dot4I8Packed(u32(f), m);
        g += dot4I8Packed(u32(g), m);
        h += dot4I8Packed(u32(h), m);
    }
    y[id.x] = u32(a ^ b ^ c ^ d ^ e ^ f ^ g ^ h);
}
