// Chooses one of the k likeliest tokens. One workgroup, whose work hardly grows with the vocabulary: it takes the k
// groups with the highest peaks (or a few more), pools their tokens that reach the lowest of these peaks (little more
// than k, for most logits), sorts the k likeliest and draws one. The choice goes into `ids`, where the next pass finds it.

const MAX_CUT: u32 = MAX_K + GROUP;

// Why there is no choice.
const BROKEN: u32 = 1u;     // a logit is NaN or infinite
const ALL_BARRED: u32 = 2u;

@group(0) @binding(6) var<storage, read_write> history: array<u32>; // [context + 1]: the sequence's tokens
@group(0) @binding(7) var<storage, read_write> ids: array<u32>;     // [1]: of the next pass
@group(0) @binding(8) var<storage, read_write> chosen: array<u32>;  // [id, why there is no choice or 0, bits of its logit]

var<workgroup> groups: array<u32, MAX_CUT>;
var<workgroup> found: array<vec2<u32>, MAX_CUT>; // the likeliest as they come, k or a few more
var<workgroup> sorted: array<vec2<u32>, MAX_K>;   // the k likeliest in order
var<workgroup> crowd: u32; // items that reach a bound
var<workgroup> group_count: atomic<u32>;
var<workgroup> pool_count: atomic<u32>;
var<workgroup> found_count: atomic<u32>;

// A bound that k items of items[first ..], so many, reach, and not many more: at most the limit. Its bits are found from
// the top, two a round; with all of them it is the k-th item itself. The rounds are a constant since lavapipe compiles a
// kernel anew for each dispatch where a loop's end is known from `params` alone.
fn cut(k: u32, first: u32, count: u32, lanes: Lanes) -> vec2<u32> {
    let limit = k + GROUP;
    var bound = vec2<u32>(0u);
    var reached = count;
    for (var round = 0u; round < 32u; round++) {
        if (lanes.lane == 0u) {
            crowd = reached;
        }
        if (workgroupUniformLoad(&crowd) <= limit) {
            break;
        }
        let in_key = round < 16u;
        let step = 1u << select(62u - 2u * round, 30u - 2u * round, in_key);
        let digit = select(vec2<u32>(0u, step), vec2<u32>(step, 0u), in_key);
        var counts = vec4<f32>();
        for (var i = lanes.lane; i < count; i += GROUP) {
            let item = items[first + i];
            let one = at_least(item, bound + digit);
            let two = at_least(item, bound + 2u * digit);
            let three = at_least(item, bound + 3u * digit);
            counts += select(vec4<f32>(), vec4<f32>(1.0), vec4<bool>(one, two, three, false));
        }
        counts = group_sum4(counts, lanes);
        for (var i = 0u; i < 3u && counts[i] >= f32(k); i++) {
            bound += digit;
            reached = u32(counts[i]);
        }
    }
    return bound;
}

// Keeps what the penalties go by.
fn note(id: u32) {
    marks[id].answer += 1u;
    let n = settings.repeat_last_n;
    if (n > 0u) {
        history[frame.position] = id;
        marks[id].recent += 1u;
        if (frame.position >= n) {
            marks[history[frame.position - n]].recent -= 1u;
        }
    }
}

@compute @workgroup_size(GROUP)
fn sample(lanes: Lanes) {
    let rules = settings;
    let k = rules.k;
    if (lanes.lane == 0u) {
        atomicStore(&group_count, 0u);
        atomicStore(&pool_count, 0u);
        atomicStore(&found_count, 0u);
    }
    let lowest_peak = cut(k, 0u, params.peaks, lanes);
    for (var i = lanes.lane; i < params.peaks; i += GROUP) {
        if (at_least(items[i], lowest_peak)) {
            groups[atomicAdd(&group_count, 1u)] = i;
        }
    }
    workgroupBarrier();
    let candidates = atomicLoad(&group_count) * params.depth;
    for (var i = lanes.lane; i < candidates; i += GROUP) {
        let id = groups[i / params.depth] + (i % params.depth) * params.peaks;
        if (id < params.cols) {
            let item = item_of(id, rules);
            if (at_least(item, lowest_peak)) {
                items[params.peaks + atomicAdd(&pool_count, 1u)] = item;
            }
        }
    }
    storageBarrier();
    workgroupBarrier();
    let pooled = atomicLoad(&pool_count);
    let lowest = cut(k, params.peaks, pooled, lanes);
    for (var i = lanes.lane; i < pooled; i += GROUP) {
        let item = items[params.peaks + i];
        if (at_least(item, lowest)) {
            found[atomicAdd(&found_count, 1u)] = item;
        }
    }
    workgroupBarrier();
    let finalists = atomicLoad(&found_count);
    for (var i = lanes.lane; i < finalists; i += GROUP) {
        let item = found[i];
        var above = 0u;
        for (var other = 0u; other < finalists; other++) {
            above += select(0u, 1u, at_least(found[other], item));
        }
        if (above <= k) {
            sorted[above - 1u] = item; // it counted itself
        }
    }
    workgroupBarrier();
    let largest = logit_of(sorted[0].x);
    for (var i = lanes.lane; i < k; i += GROUP) {
        let below = logit_of(sorted[i].x) - largest;
        let barred = sorted[i].x == NEVER;
        weights[i] = select(exp(max(below, -120.0)), -1.0, barred);
        heated[i] = exp(max(below / settings.temperature, -120.0));
    }
    workgroupBarrier();
    if (lanes.lane == 0u) {
        var count = k; // without barred tokens, which are the last
        while (count > 0u && weights[count - 1u] < 0.0) {
            count--;
        }
        var why = select(0u, BROKEN, sorted[0].x == NOT_FINITE);
        why = select(why, ALL_BARRED, count == 0u);
        var rank = 0u;
        if (why == 0u) {
            rank = draw(count);
        }
        let id = id_of(sorted[rank]);
        chosen[0] = id;
        chosen[1] = why;
        chosen[2] = bitcast<u32>(logits[id]);
        ids[0] = id;
        if (settings.penalized != 0u) {
            note(id);
        }
    }
}
