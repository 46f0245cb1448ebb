// The k largest of a row, largest first, the lower id first among equals; k = 1 is argmax.
// One workgroup goes over the row k times, each time for the best after the one before.
// Also says whether any value of the row is NaN or infinite: then no choice from it means anything.

const GROUP: u32 = 64u;
const NONE: u32 = 0xffffffffu;

struct Params {
    cols: u32,
    stride: u32, // in floats
    k: u32,
    best_stride: u32, // in pairs
}

struct Best {
    id: u32,
    value: f32,
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> x: array<f32>;          // [T, N]
@group(0) @binding(3) var<storage, read_write> best: array<Best>; // [T, k]
@group(0) @binding(4) var<storage, read_write> broken: array<u32>; // [T]: id + 1 of a value that is not finite, or 0

var<workgroup> ids: array<u32, GROUP>;
var<workgroup> values: array<f32, GROUP>;

// Whether (value, id) comes before (other_value, other_id).
fn before(value: f32, id: u32, other_value: f32, other_id: u32) -> bool {
    return value > other_value || (value == other_value && id < other_id);
}

@compute @workgroup_size(GROUP)
fn top_k(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let row = group.z * params.stride;
    var bad = 0u;
    for (var i = lane; i < params.cols; i += GROUP) {
        // by bits: compilers may assume that no NaN exists
        if ((bitcast<u32>(x[row + i]) & 0x7f800000u) == 0x7f800000u) {
            bad = i + 1u;
        }
    }
    ids[lane] = bad;
    workgroupBarrier();
    if (lane == 0u) {
        for (var i = 1u; i < GROUP; i++) {
            bad = max(bad, ids[i]);
        }
        broken[group.z] = bad;
    }
    workgroupBarrier();

    var last_id = NONE;
    var last_value = 0.0;
    for (var rank = 0u; rank < params.k; rank++) {
        var id = NONE;
        var value = -3.4e38;
        for (var i = lane; i < params.cols; i += GROUP) {
            let v = x[row + i];
            let open = rank == 0u || before(last_value, last_id, v, i);
            if (open && (id == NONE || v > value)) {
                id = i;
                value = v;
            }
        }
        ids[lane] = id;
        values[lane] = value;
        workgroupBarrier();
        for (var half = GROUP / 2u; half > 0u; half >>= 1u) {
            if (lane < half) {
                let other = lane + half;
                let empty = ids[lane] == NONE;
                if (ids[other] != NONE && (empty || before(values[other], ids[other], values[lane], ids[lane]))) {
                    ids[lane] = ids[other];
                    values[lane] = values[other];
                }
            }
            workgroupBarrier();
        }
        last_id = ids[0];
        last_value = values[0];
        if (lane == 0u) {
            best[group.z * params.best_stride + rank] = Best(last_id, last_value);
        }
        workgroupBarrier();
    }
}
