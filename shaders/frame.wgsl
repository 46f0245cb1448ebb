// What changes from one replay of a plan to the next; everything else is fixed when the plan is built.
struct Frame {
    position: u32, // of the first token of this pass in its sequence
    tokens: u32,   // tokens in this pass
}

@group(0) @binding(1) var<uniform> frame: Frame;

// Workgroups beyond 65,535 are folded into y.
fn group_index(group: vec3<u32>, groups: vec3<u32>) -> u32 {
    return group.y * groups.x + group.x;
}
