// Reductions over a workgroup through shared memory: works on every device.
// reduce/subgroup.wgsl defines the same names. Every lane must call, and every lane gets the result.

const GROUP: u32 = 64u;

struct Lanes {
    @builtin(local_invocation_index) lane: u32,
}

var<workgroup> partial: array<f32, GROUP>;
var<workgroup> partial4: array<vec4<f32>, GROUP>;

fn group_sum(value: f32, lanes: Lanes) -> f32 {
    partial[lanes.lane] = value;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        if (lanes.lane < half) {
            partial[lanes.lane] += partial[lanes.lane + half];
        }
        workgroupBarrier();
    }
    let sum = partial[0];
    workgroupBarrier();
    return sum;
}

fn group_max(value: f32, lanes: Lanes) -> f32 {
    partial[lanes.lane] = value;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        if (lanes.lane < half) {
            partial[lanes.lane] = max(partial[lanes.lane], partial[lanes.lane + half]);
        }
        workgroupBarrier();
    }
    let most = partial[0];
    workgroupBarrier();
    return most;
}

fn group_sum4(value: vec4<f32>, lanes: Lanes) -> vec4<f32> {
    partial4[lanes.lane] = value;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        if (lanes.lane < half) {
            partial4[lanes.lane] += partial4[lanes.lane + half];
        }
        workgroupBarrier();
    }
    let sum = partial4[0];
    workgroupBarrier();
    return sum;
}

fn group_max4(value: vec4<f32>, lanes: Lanes) -> vec4<f32> {
    partial4[lanes.lane] = value;
    workgroupBarrier();
    for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
        if (lanes.lane < half) {
            partial4[lanes.lane] = max(partial4[lanes.lane], partial4[lanes.lane + half]);
        }
        workgroupBarrier();
    }
    let most = partial4[0];
    workgroupBarrier();
    return most;
}
