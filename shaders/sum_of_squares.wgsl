// Sums of the squares of some rows, one for each workgroup: together the gradients' norm.

struct Params {
    rows: u32,
    vectors: u32, // vec4 of a row
    first: u32,   // where row 0 lies in x, in vec4
    stride: u32,  // of a row, in vec4
    groups: u32,  // workgroups that share the work
    slot: u32,    // where their sums go
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<vec4<f32>>;    // [rows, cols]
@group(0) @binding(3) var<storage, read_write> sums: array<f32>; // [slots]

@compute @workgroup_size(GROUP)
fn sum_of_squares(@builtin(workgroup_id) group: vec3<u32>, lanes: Lanes) {
    var sum = vec4<f32>();
    for (var i = group.x * GROUP + lanes.lane; i < params.rows * params.vectors; i += params.groups * GROUP) {
        let v = x[params.first + i / params.vectors * params.stride + i % params.vectors];
        sum += v * v;
    }
    let total = group_sum(dot(sum, vec4<f32>(1.0)), lanes);
    if (lanes.lane == 0u) {
        sums[params.slot + group.x] = total;
    }
}
