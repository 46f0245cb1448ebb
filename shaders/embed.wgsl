// Row gather: y[t] = table[ids[t]], decoded. One lane decodes one block of 32.
// A part of the table that does not hold the row leaves y alone.

struct Params {
    blocks: u32,    // blocks a row
    first_row: u32, // of this part
    rows: u32,      // of this part
    y_stride: u32,  // in vec4
    skip: u32,      // rows of the buffers that come before this part's
}

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(4) var<storage, read> ids: array<u32>;           // [T]
@group(0) @binding(5) var<storage, read_write> y: array<vec4<f32>>; // [T, C]

@compute @workgroup_size(64)
fn embed(@builtin(global_invocation_id) id: vec3<u32>) {
    let block = id.x;
    let token = id.z;
    if (block >= params.blocks) {
        return;
    }
    let row = ids[token] - params.first_row; // wraps to a large number below the part
    if (row >= params.rows) {
        return;
    }
    let w = decode(first_block(row) + block * BLOCK_STEP);
    let i = token * params.y_stride + block * 8u;
    y[i] = w.w0 * w.scale.x + w.offset;
    y[i + 1u] = w.w1 * w.scale.x + w.offset;
    y[i + 2u] = w.w2 * w.scale.x + w.offset;
    y[i + 3u] = w.w3 * w.scale.x + w.offset;
    y[i + 4u] = w.w4 * w.scale.y + w.offset;
    y[i + 5u] = w.w5 * w.scale.y + w.offset;
    y[i + 6u] = w.w6 * w.scale.y + w.offset;
    y[i + 7u] = w.w7 * w.scale.y + w.offset;
}
