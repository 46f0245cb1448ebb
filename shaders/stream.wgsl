// Reads a buffer once, as fast as the device can, to measure that: the ceiling that matvec is compared with.
// Each lane reads a run of its own (as matvec_lane does) or every lane-th vector (as matvec does).

struct Params {
    per_lane: u32, // vec4 that a lane reads
    step: u32,     // between a lane's reads: 1, or the number of lanes
    start: u32,    // between the lanes' first reads: per_lane, or 1
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<u32>>;
@group(0) @binding(3) var<storage, read_write> y: array<u32>; // [lanes]

@compute @workgroup_size(64)
fn stream(@builtin(global_invocation_id) id: vec3<u32>) {
    var i = id.x * params.start;
    var a = vec4<u32>();
    var b = vec4<u32>();
    for (var n = 0u; n < params.per_lane; n += 4u) {
        a ^= x[i] ^ x[i + params.step];
        b ^= x[i + 2u * params.step] ^ x[i + 3u * params.step];
        i += 4u * params.step;
    }
    let all = a ^ b;
    y[id.x] = all.x ^ all.y ^ all.z ^ all.w;
}
