// Multiply-adds without memory, to measure the device's arithmetic: the ceiling that matmul is compared with.
// Eight chains a lane, so that no multiply-add waits for the one before.

struct Params {
    rounds: u32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read_write> y: array<f32>; // [lanes]

@compute @workgroup_size(64)
fn multiply_add(@builtin(global_invocation_id) id: vec3<u32>) {
    let x = vec4<f32>(f32(id.x) * 1e-6);
    let m = vec4<f32>(0.999);
    var a = x;
    var b = x + 0.1;
    var c = x + 0.2;
    var d = x + 0.3;
    var e = x + 0.4;
    var f = x + 0.5;
    var g = x + 0.6;
    var h = x + 0.7;
    for (var n = 0u; n < params.rounds; n++) {
        a = a * m + x;
        b = b * m + x;
        c = c * m + x;
        d = d * m + x;
        e = e * m + x;
        f = f * m + x;
        g = g * m + x;
        h = h * m + x;
    }
    y[id.x] = dot(a + b + c + d, e + f + g + h);
}
