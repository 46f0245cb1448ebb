// The likeliest token of each group, one lane a group. The k likeliest of all lie in the k groups with the highest peaks.

@compute @workgroup_size(64)
fn peaks(@builtin(global_invocation_id) at: vec3<u32>) {
    let rules = settings;
    let peak = at.x;
    if (peak >= params.peaks) {
        return;
    }
    var best = item_of(peak, rules);
    for (var id = peak + params.peaks; id < params.cols; id += params.peaks) {
        let item = item_of(id, rules);
        if (at_least(item, best)) {
            best = item;
        }
    }
    items[peak] = best;
}
