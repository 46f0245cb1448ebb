// Reductions over a workgroup, first inside each subgroup of whatever size, then over one partial a subgroup.
// reduce/shared.wgsl defines the same names. Every lane must call, and every lane gets the result.

const GROUP: u32 = 64u;

struct Lanes {
    @builtin(local_invocation_index) lane: u32,
    @builtin(subgroup_invocation_id) subgroup_lane: u32,
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
}

var<workgroup> partial: array<f32, GROUP>;
var<workgroup> partial4: array<vec4<f32>, GROUP>;

fn group_sum(value: f32, lanes: Lanes) -> f32 {
    let own = subgroupAdd(value);
    if (lanes.subgroup_lane == 0u) {
        partial[lanes.subgroup] = own;
    }
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < lanes.subgroups; i++) {
        sum += partial[i];
    }
    workgroupBarrier();
    return sum;
}

fn group_max(value: f32, lanes: Lanes) -> f32 {
    let own = subgroupMax(value);
    if (lanes.subgroup_lane == 0u) {
        partial[lanes.subgroup] = own;
    }
    workgroupBarrier();
    var most = partial[0];
    for (var i = 1u; i < lanes.subgroups; i++) {
        most = max(most, partial[i]);
    }
    workgroupBarrier();
    return most;
}

fn group_sum4(value: vec4<f32>, lanes: Lanes) -> vec4<f32> {
    let own = subgroupAdd(value);
    if (lanes.subgroup_lane == 0u) {
        partial4[lanes.subgroup] = own;
    }
    workgroupBarrier();
    var sum = vec4<f32>();
    for (var i = 0u; i < lanes.subgroups; i++) {
        sum += partial4[i];
    }
    workgroupBarrier();
    return sum;
}

fn group_max4(value: vec4<f32>, lanes: Lanes) -> vec4<f32> {
    let own = subgroupMax(value);
    if (lanes.subgroup_lane == 0u) {
        partial4[lanes.subgroup] = own;
    }
    workgroupBarrier();
    var most = partial4[0];
    for (var i = 1u; i < lanes.subgroups; i++) {
        most = max(most, partial4[i]);
    }
    workgroupBarrier();
    return most;
}
