// Four channels of a head from what attention left of each split of the keys (`parts`): the sum of the parts, each weighed
// with exp(its largest score - the largest of all), over the total weighed likewise.

fn joined(token: u32, head: u32, vector: u32) -> vec4<f32> {
    let n = params.vectors;
    let first = (token * params.heads + head) * params.splits * (n + 1u);
    let splits = (frame.position + token) / params.split + 1u; // that have a key for this token
    var most = parts[first + n].x;
    for (var s = 1u; s < splits; s++) {
        most = max(most, parts[first + s * (n + 1u) + n].x);
    }
    var total = 0.0;
    var sum = vec4<f32>();
    for (var s = 0u; s < splits; s++) {
        let i = first + s * (n + 1u);
        let own = parts[i + n];
        let weight = exp(own.x - most);
        total += weight * own.y;
        sum += weight * parts[i + vector];
    }
    return sum / total;
}
