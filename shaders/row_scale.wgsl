// For each token a power of two that brings its largest gradient just below the largest half: so gradients, which are small and
// differ much from token to token, can be halves. One workgroup a token. Only exponents are compared, as bits: so NaN and infinity
// are above all. The scale of such a row is zero, so that what is divided by it is not finite either.

struct Params {
    count: u32,  // gradients of a token
    first: u32,  // the column of the first
    step: u32,   // from there to the next
    stride: u32, // of a token in dy, in floats
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> dy: array<f32>;               // [T, ..]
@group(0) @binding(3) var<storage, read_write> row_scales: array<f32>; // [T]

@compute @workgroup_size(GROUP)
fn row_scale(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let row = group.z * params.stride + params.first;
    var most = 0u;
    for (var i = lanes.lane; i < params.count; i += GROUP) {
        most = max(most, (bitcast<u32>(dy[row + i * params.step]) >> 23u) & 255u);
    }
    let exponent = u32(group_max(f32(most), lanes)); // of the largest, 127 being that of 1
    if (lanes.lane == 0u) {
        let scale = clamp(267u - exponent, 27u, 227u); // the largest comes to 2^13 and more, below 2^14
        row_scales[group.z] = bitcast<f32>(select(scale << 23u, 0u, exponent == 255u));
    }
}
