// One step of SGD: w (1 - rate decay) - rate momentum, which is its old value times beta1, plus the gradient. One lane takes
// four weights.

@group(0) @binding(5) var<storage, read_write> momenta: array<vec4<f32>>; // [rows, cols]

@compute @workgroup_size(64)
fn sgd(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
) {
    let i = group_index(group, groups) * 64u + index;
    if (i >= params.rows * params.vectors) {
        return;
    }
    let at = place_of(i);
    let momentum = rates[0].beta1 * momenta[at] + gradient[at] * rates[0].clip;
    momenta[at] = momentum;
    w[at] = decayed(w[at]) - rates[0].rate * momentum;
}
