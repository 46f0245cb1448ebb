// Sums and extremes of a row's numbers, a tile of columns for each workgroup; the rest is summed in f64 where they are read.
// NaN are counted and left out of all else.

struct Params {
    cols: u32,
    stride: u32, // of a row, in floats
    tile: u32,   // columns of a tile
    tiles: u32,  // of a row
    first: u32,  // where row 0 lies in parts
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;                 // [T, cols]
@group(0) @binding(3) var<storage, read_write> parts: array<vec4<f32>>; // [T, tiles, 2]: sums (squares, numbers, sizes, NaN), (max, -min, 0, 0)

@compute @workgroup_size(GROUP)
fn statistics(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    let row = group.z * params.stride;
    let end = min((group.x + 1u) * params.tile, params.cols);
    var sums = vec4<f32>();
    var most = vec4<f32>(-3.4028234e38, -3.4028234e38, 0.0, 0.0);
    for (var i = group.x * params.tile + lanes.lane; i < end; i += GROUP) {
        let v = x[row + i];
        if ((bitcast<u32>(v) & 0x7fffffffu) > 0x7f800000u) {
            sums.w += 1.0;
        } else {
            sums += vec4<f32>(v * v, v, abs(v), 0.0);
            most = max(most, vec4<f32>(v, -v, 0.0, 0.0));
        }
    }
    sums = group_sum4(sums, lanes);
    most = group_max4(most, lanes);
    if (lanes.lane == 0u) {
        let at = params.first + (group.z * params.tiles + group.x) * 2u;
        parts[at] = sums;
        parts[at + 1u] = most;
    }
}
