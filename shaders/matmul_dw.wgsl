// dW = dyᵀ x: the backward pass of y = W x to W. One workgroup for 32 rows of W and 64 channels. It goes over the tokens,
// 32 at a time, in order: each element of dW has one owner, whose sum is the same in every run.
// matmul_dw_lane.wgsl is the version for processors that emulate a GPU.

const TILE: u32 = 32u; // tokens, and rows of W

var<workgroup> x_tile: array<vec4<f32>, TILE * 16u>; // [32 tokens, 64 channels]
var<workgroup> dy_tile: array<vec4<f32>, TILE * 8u>; // [32 tokens, 32 rows]

@compute @workgroup_size(64)
fn matmul_dw(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let tile = group_index(group, groups);
    let first_row = tile / params.columns * TILE;
    let first_vector = tile % params.columns * 16u;
    let rows = index >> 3u;            // four of them
    let channels = (index & 7u) * 2u;  // two vec4
    var s0 = vec4<f32>(); var s1 = vec4<f32>(); var s2 = vec4<f32>(); var s3 = vec4<f32>(); // channels, row by row
    var t0 = vec4<f32>(); var t1 = vec4<f32>(); var t2 = vec4<f32>(); var t3 = vec4<f32>(); // the next four channels
    for (var token = 0u; token < frame.tokens; token += TILE) {
        for (var j = index; j < TILE * 16u; j += 64u) {
            let t = min(token + (j >> 4u), frame.tokens - 1u); // past the last one dy is zero
            x_tile[j] = x[t * params.x_stride + min(first_vector + (j & 15u), params.vectors - 1u)];
        }
        for (var j = index; j < TILE * 8u; j += 64u) {
            let row = first_row + (j & 7u) * 4u;
            let t = token + (j >> 3u);
            dy_tile[j] = vec4<f32>(dy_of(t, row), dy_of(t, row + 1u), dy_of(t, row + 2u), dy_of(t, row + 3u));
        }
        workgroupBarrier();
        for (var t = 0u; t < TILE; t++) {
            let d = dy_tile[t * 8u + rows];
            let a = x_tile[t * 16u + channels];
            let b = x_tile[t * 16u + channels + 1u];
            s0 += d.x * a; s1 += d.y * a; s2 += d.z * a; s3 += d.w * a;
            t0 += d.x * b; t1 += d.y * b; t2 += d.z * b; t3 += d.w * b;
        }
        workgroupBarrier();
    }
    let row = first_row + rows * 4u;
    let i = first_vector + channels;
    put_row(row, i, s0); put_row(row + 1u, i, s1); put_row(row + 2u, i, s2); put_row(row + 3u, i, s3);
    put_row(row, i + 1u, t0); put_row(row + 1u, i + 1u, t1); put_row(row + 2u, i + 1u, t2); put_row(row + 3u, i + 1u, t3);
}
