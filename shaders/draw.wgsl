// top-p, min-p and the draw, in this order, among the likeliest tokens: what src/sampling/ does after top-k, in f32.

const MAX_K: u32 = 256u;

// Of the likeliest tokens in order, the most likely first, all times a common factor.
var<workgroup> weights: array<f32, MAX_K>; // probabilities at temperature 1
var<workgroup> heated: array<f32, MAX_K>;  // at the temperature

// The rank of the token that is drawn from the first `count`, at least one.
fn draw(count: u32) -> u32 {
    var kept = count;
    if (settings.top_p < 1.0) {
        var goal = 0.0;
        for (var i = 0u; i < kept; i++) {
            goal += weights[i];
        }
        goal *= settings.top_p;
        var sum = 0.0;
        for (var i = 0u; i < kept; i++) {
            sum += weights[i];
            if (sum >= goal) {
                kept = i + 1u;
            }
        }
    }
    while (kept > 1u && weights[kept - 1u] < settings.min_p) {
        kept--;
    }
    var rest = 0.0;
    for (var i = 0u; i < kept; i++) {
        rest += heated[i];
    }
    rest *= settings.random;
    var last = 0u;
    for (var i = 0u; i < kept && rest >= 0.0; i++) {
        if (heated[i] > 0.0) {
            last = i; // rounding may leave a rest behind the last one
            rest -= heated[i];
        }
    }
    return last;
}
