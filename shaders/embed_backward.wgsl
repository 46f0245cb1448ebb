// The table's gradient: to each row that was gathered, the sum of dy over the tokens that gathered it is added. The first
// of these tokens owns the row, so no two lanes write to one place. One lane takes four channels.

struct Params {
    vectors: u32,       // vec4 of a row that count: C / 4, rounded up
    dy_stride: u32,     // of a token in dy, in vec4
    dtable_stride: u32, // of a row in dtable, in vec4
    first_row: u32,     // of the table, that dtable holds
    rows: u32,          // that dtable holds
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> ids: array<u32>;                // [T]
@group(0) @binding(3) var<storage, read> dy: array<vec4<f32>>;           // [T, C]
@group(0) @binding(4) var<storage, read_write> dtable: array<vec4<f32>>; // [V, C], or some of its rows

@compute @workgroup_size(64)
fn embed_backward(@builtin(global_invocation_id) id: vec3<u32>) {
    let i = id.x;
    let token = id.z;
    let row = ids[token] - params.first_row; // wraps to a large number below the first
    if (i >= params.vectors || row >= params.rows) {
        return;
    }
    for (var t = 0u; t < token; t++) {
        if (ids[t] == ids[token]) {
            return; // that one owns the row
        }
    }
    var sum = dy[token * params.dy_stride + i];
    for (var t = token + 1u; t < frame.tokens; t++) {
        if (ids[t] == ids[token]) {
            sum += dy[t * params.dy_stride + i];
        }
    }
    dtable[row * params.dtable_stride + i] += sum;
}
