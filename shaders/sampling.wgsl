// What both steps of sampling share: the rules of this token's choice, and the order of the tokens.
//
// An item is a token as two numbers: one that sorts as its logit (penalties applied) does, then one that grows as
// the id falls. The greater item is the likelier token; among equal logits that is the lower id.

struct Params {
    cols: u32,  // V
    peaks: u32, // groups of tokens: group p has the ids p, p + peaks, p + 2 peaks, ..
    depth: u32, // tokens of a group at most
}

struct Settings {
    k: u32, // 1 to 256, at most V
    penalized: u32, // whether penalties are on or tokens barred; else marks and history are left alone
    repeat_penalty: f32, // 1 is off
    repeat_last_n: u32,
    frequency_penalty: f32,
    presence_penalty: f32,
    top_p: f32, // 1 is off
    min_p: f32,
    temperature: f32, // above 0
    random: f32, // 0 to 1
}

struct Mark {
    recent: u32, // how often the last repeat_last_n tokens have it; the highest bit: it is barred
    answer: u32, // how often the answer has it
}

const BARRED: u32 = 0x80000000u;
const NOT_FINITE: u32 = 0xffffffffu; // above every number's key
const NEVER: u32 = 0u;               // a barred token's key, below every number's

@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(2) var<storage, read> logits: array<f32>;           // [V]
@group(0) @binding(3) var<storage, read> settings: Settings;
@group(0) @binding(4) var<storage, read_write> marks: array<Mark>;     // [V]
@group(0) @binding(5) var<storage, read_write> items: array<vec2<u32>>; // [peaks + 320 depth]: peaks, then a pool

// The rules by value: a loop would load them again for every token.
fn item_of(id: u32, rules: Settings) -> vec2<u32> {
    return vec2<u32>(key_of(id, rules), params.cols - 1u - id);
}

fn id_of(item: vec2<u32>) -> u32 {
    return params.cols - 1u - item.y;
}

fn at_least(a: vec2<u32>, b: vec2<u32>) -> bool {
    return a.x > b.x || (a.x == b.x && a.y >= b.y);
}

fn key_of(id: u32, rules: Settings) -> u32 {
    var x = logits[id];
    // by bits: compilers may assume that no NaN exists
    if ((bitcast<u32>(x) & 0x7f800000u) == 0x7f800000u) {
        return NOT_FINITE;
    }
    if (rules.penalized != 0u) {
        let mark = marks[id];
        if ((mark.recent & BARRED) != 0u) {
            return NEVER;
        }
        if (mark.recent != 0u && rules.repeat_penalty != 1.0) {
            x = finite(select(x * rules.repeat_penalty, x / rules.repeat_penalty, x > 0.0));
        }
        if (mark.answer != 0u) {
            x = finite(x - f32(mark.answer) * rules.frequency_penalty - rules.presence_penalty);
        }
    }
    let bits = select(bitcast<u32>(x), 0u, x == 0.0); // 0 and -0 are equals
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn logit_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

// An extreme penalty makes no infinity, which would be taken for a broken model.
fn finite(x: f32) -> f32 {
    return clamp(x, -0x1.fffffep+127f, 0x1.fffffep+127f);
}
