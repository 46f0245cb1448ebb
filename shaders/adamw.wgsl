// One step of AdamW: w (1 - rate decay) - rate mean / (sqrt(square) + eps), where the moving means of gradient and squared
// gradient are divided by what they lack after so few steps. One lane takes four weights.

@group(0) @binding(5) var<storage, read_write> means: array<vec4<f32>>;   // [rows, cols]
@group(0) @binding(6) var<storage, read_write> squares: array<vec4<f32>>; // [rows, cols]

@compute @workgroup_size(64)
fn adamw(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let i = group_index(group, groups) * 64u + index;
    if (i >= params.rows * params.vectors) {
        return;
    }
    let at = place_of(i);
    let r = rates[0];
    let g = gradient[at] * r.clip;
    let mean = r.beta1 * means[at] + (1.0 - r.beta1) * g;
    let square = r.beta2 * squares[at] + (1.0 - r.beta2) * g * g;
    means[at] = mean;
    squares[at] = square;
    w[at] = decayed(w[at]) - r.rate * (mean / r.lacks1) / (sqrt(square / r.lacks2) + r.eps);
}
