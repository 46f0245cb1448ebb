//! The CPU sampler and the stop strings: numbers worked out by hand, a slow sampler that sorts everything, distributions.

mod common;

use common::{Random, Table, close};
use peregrine::sampling::{Sampler, Sampling, StopStrings};
use peregrine::{Error, Result};
use proptest::prelude::*;

/// The logits of most rows below; their probabilities are 0.607, 0.223, 0.135, 0.030, 0.004.
const LOGITS: [f32; 5] = [2.0, 1.0, 0.5, -1.0, -3.0];

/// Temperature 1 and nothing filtered or penalised.
fn open() -> Sampling {
    Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: Some(1), ..Sampling::default() }
}

fn kept(sampling: Sampling, logits: &[f32], tokens: &[u32]) -> Vec<u32> {
    let filtered = Sampler::new(sampling).unwrap().filtered(logits, tokens).unwrap();
    filtered.iter().map(|(id, _)| *id).collect()
}

fn equal<T: PartialEq + std::fmt::Debug>(got: T, want: T) -> std::result::Result<(), String> {
    if got == want { Ok(()) } else { Err(format!("got {got:?}, expected {want:?}")) }
}

#[test]
fn filters_keep_the_right_tokens() {
    let ties = [1.0, 2.0, 2.0, 0.0];
    let rows: &[(&str, Sampling, &[f32], &[u32])] = &[
        ("all off", open(), &LOGITS, &[0, 1, 2, 3, 4]),
        ("top_k 0 is off", Sampling { top_k: 0, ..open() }, &LOGITS, &[0, 1, 2, 3, 4]),
        ("top_k 1", Sampling { top_k: 1, ..open() }, &LOGITS, &[0]),
        ("top_k 3", Sampling { top_k: 3, ..open() }, &LOGITS, &[0, 1, 2]),
        ("top_k of more than there are", Sampling { top_k: u32::MAX, ..open() }, &LOGITS, &[0, 1, 2, 3, 4]),
        ("top_k cuts ties by id", Sampling { top_k: 1, ..open() }, &ties, &[1]),
        ("top_p 0 keeps one", Sampling { top_p: 0.0, ..open() }, &LOGITS, &[0]),
        ("top_p 0.6", Sampling { top_p: 0.6, ..open() }, &LOGITS, &[0]),
        ("top_p 0.8", Sampling { top_p: 0.8, ..open() }, &LOGITS, &[0, 1]),
        ("top_p 0.99", Sampling { top_p: 0.99, ..open() }, &LOGITS, &[0, 1, 2, 3]),
        ("top_p 1 is off", Sampling { top_p: 1.0, ..open() }, &LOGITS, &[0, 1, 2, 3, 4]),
        ("top_p of what top_k left", Sampling { top_k: 2, top_p: 0.7, ..open() }, &LOGITS, &[0]),
        ("top_p before the temperature", Sampling { top_p: 0.8, temperature: 5.0, ..open() }, &LOGITS, &[0, 1]),
        ("min_p 0.2", Sampling { min_p: 0.2, ..open() }, &LOGITS, &[0, 1, 2]),
        ("min_p before the temperature", Sampling { min_p: 0.2, temperature: 2.0, ..open() }, &LOGITS, &[0, 1, 2]),
        ("min_p 1 keeps what equals the top", Sampling { min_p: 1.0, ..open() }, &ties, &[1, 2]),
        ("greedy", Sampling::greedy(), &LOGITS, &[0]),
        ("greedy takes the lower id of a tie", Sampling::greedy(), &ties, &[1]),
        ("greedy: 0 and -0 are a tie", Sampling::greedy(), &[-1.0, -0.0, 0.0], &[1]),
        ("greedy looks through filters", Sampling { temperature: 0.0, top_k: 3, min_p: 0.5, ..open() }, &LOGITS, &[0]),
        ("barred", Sampling { barred: vec![0, 2, 2], ..open() }, &LOGITS, &[1, 3, 4]),
        ("barred, then top_k", Sampling { barred: vec![0], top_k: 2, ..open() }, &LOGITS, &[1, 2]),
        ("barred, greedy", Sampling { barred: vec![0, 1], ..Sampling::greedy() }, &LOGITS, &[2]),
        ("one token", Sampling { top_k: 5, top_p: 0.1, min_p: 0.9, ..open() }, &[-7.0], &[0]),
    ];
    let mut table = Table::new("filters");
    for (name, sampling, logits, want) in rows {
        table.row(name, equal(kept(sampling.clone(), logits, &[]), want.to_vec()));
    }
    table.finish();
}

#[test]
fn penalties_change_the_logits() {
    let repeat = |penalty, last| Sampling { repeat_penalty: penalty, repeat_last_n: last, ..open() };
    let rows: &[(&str, Sampling, &[u32], [f32; 5])] = &[
        ("off", repeat(1.0, 64), &[0, 4], LOGITS),
        ("divides above 0, multiplies below", repeat(1.5, 64), &[0, 4], [1.3333, 1.0, 0.5, -1.0, -4.5]),
        ("the last two only", repeat(1.5, 2), &[0, 4, 2, 3], [2.0, 1.0, 0.3333, -1.5, -3.0]),
        ("once for a token seen often", repeat(2.0, 64), &[1, 1, 1, 1], [2.0, 0.5, 0.5, -1.0, -3.0]),
        ("a window of none", repeat(1.5, 0), &[0, 4], LOGITS),
        ("below 1 it favours", repeat(0.5, 64), &[0, 3], [4.0, 1.0, 0.5, -0.5, -3.0]),
        ("no tokens yet", repeat(1.5, 64), &[], LOGITS),
    ];
    let mut table = Table::new("penalties");
    for (name, sampling, tokens, want) in rows {
        let mut logits = LOGITS;
        Sampler::new(sampling.clone()).unwrap().penalize(&mut logits, tokens).unwrap();
        table.row(name, close(name, &logits, want, 1e-4, 0.0).map(drop));
    }
    // The limits of f32 are no infinities.
    let mut logits = [f32::MAX, 3e38, -3e38];
    Sampler::new(repeat(1e-30, 9)).unwrap().penalize(&mut logits, &[0, 1]).unwrap();
    Sampler::new(repeat(1e30, 9)).unwrap().penalize(&mut logits, &[2]).unwrap();
    table.row("extremes stay finite", equal(logits.map(f32::is_finite), [true; 3]));
    table.finish();
}

/// Frequency and presence penalties see the answer, not the prompt.
#[test]
fn frequency_and_presence_count_the_answer() {
    let mut table = Table::new("frequency and presence penalties");
    for (name, frequency_penalty, presence_penalty, want) in [
        ("frequency 0.6", 0.6, 0.0, vec![0, 0, 1, 0, 2, 1]),
        ("presence 1.2", 0.0, 1.2, vec![0, 1, 0, 0, 0, 0]),
        ("both off", 0.0, 0.0, vec![0; 6]),
    ] {
        let mut sampler = Sampler::new(Sampling { frequency_penalty, presence_penalty, ..Sampling::greedy() }).unwrap();
        let got: Vec<u32> = (0..6).map(|_| sampler.pick(&mut LOGITS.clone(), &[0, 0, 0]).unwrap()).collect();
        table.row(name, equal(got, want));
    }
    table.finish();
}

/// A penalty moves the choice, and the prompt counts.
#[test]
fn repeat_penalty_sees_the_prompt() {
    let sampling = Sampling { repeat_penalty: 1.3, ..Sampling::greedy() };
    let pick = |logits: [f32; 3], tokens: &[u32]| {
        Sampler::new(sampling.clone()).unwrap().pick(&mut logits.clone(), tokens).unwrap()
    };
    assert_eq!(pick([1.0, 0.9, 0.0], &[]), 0);
    assert_eq!(pick([1.0, 0.9, 0.0], &[2, 0]), 1);
    assert_eq!(pick([-0.9, -1.0, -9.0], &[0]), 1);
}

/// The same filters by sorting everything: (id, probability), the likeliest first.
fn slow_filter(sampling: &Sampling, logits: &[f32]) -> Vec<(u32, f64)> {
    let mut all: Vec<(u32, f64)> = logits.iter().enumerate().map(|(id, &logit)| (id as u32, logit as f64)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    if sampling.top_k > 0 {
        all.truncate(sampling.top_k as usize);
    }
    let top = all[0].1;
    if sampling.top_p < 1.0 {
        let total: f64 = all.iter().map(|x| (x.1 - top).exp()).sum();
        let mut sum = 0.0;
        let needed = all.iter().take_while(|x| {
            let more = sum / total < sampling.top_p as f64;
            sum += (x.1 - top).exp();
            more
        });
        let needed = needed.count().max(1);
        all.truncate(needed);
    }
    all.retain(|x| (x.1 - top).exp() >= sampling.min_p as f64);
    let weight = |logit: f64| ((logit - top) / sampling.temperature as f64).exp();
    let total: f64 = all.iter().map(|x| weight(x.1)).sum();
    all.iter().map(|x| (x.0, weight(x.1) / total)).collect()
}

#[test]
fn filters_equal_a_full_sort() {
    let mut table = Table::new("filters against a full sort");
    let mut random = Random::new(7);
    for vocab in [1, 2, 17, 255, 256, 257, 1757, 40_000] {
        for row in 0..24 {
            // Every third row has many ties, every fourth is nearly flat, so that top-p needs many tokens.
            let spread = if row % 4 == 0 { 0.01 } else { 3.0 };
            let mut logits = random.normals(vocab, spread);
            if row % 3 == 0 {
                logits.iter_mut().for_each(|x| *x = (*x * 4.0).round() / 4.0 + 0.0);
            }
            let sampling = Sampling {
                temperature: [0.3, 1.0, 1.7][row % 3],
                top_k: [0, 0, 1, 40, 300][row % 5],
                top_p: [1.0, 0.9, 0.5, 0.999][(row + row / 4) % 4],
                min_p: [0.0, 0.0, 0.1, 0.003][(row / 4) % 4],
                ..open()
            };
            let got = Sampler::new(sampling.clone()).unwrap().filtered(&logits, &[]).unwrap();
            let want = slow_filter(&sampling, &logits);
            let ids = |list: &[(u32, f64)]| list.iter().map(|x| x.0).collect::<Vec<_>>();
            let far = got.iter().zip(&want).find(|(a, b)| (a.1 - b.1).abs() > 1e-12);
            let outcome = match far {
                _ if ids(&got) != ids(&want) => Err(format!("{} kept, expected {}", got.len(), want.len())),
                Some(pair) => Err(format!("probabilities differ: {pair:?}")),
                None => Ok(()),
            };
            table.row(&format!("{vocab} tokens, {sampling:?}"), outcome);
        }
    }
    table.finish();
}

/// How far counts lie from their expectation: (chi-square - d) / sqrt(2 d) for d degrees of freedom. Near a standard normal;
/// with fixed seeds it is a fixed number, and 4 is only passed by a wrong distribution.
fn deviation(counts: &[u32], probabilities: &[f64]) -> f64 {
    let draws = counts.iter().sum::<u32>() as f64;
    let terms = counts.iter().zip(probabilities);
    let chi: f64 = terms.map(|(&n, p)| (n as f64 - draws * p).powi(2) / (draws * p)).sum();
    let freedom = (counts.len() - 1) as f64;
    (chi - freedom) / (2.0 * freedom).sqrt()
}

#[test]
fn draws_follow_the_probabilities() {
    let mut random = Random::new(3);
    let flat = vec![0.5; 100];
    let bumpy = random.normals(50, 1.0);
    let rows: &[(&str, Sampling, &[f32])] = &[
        ("five tokens", open(), &LOGITS),
        ("temperature 0.5", Sampling { temperature: 0.5, ..open() }, &LOGITS),
        ("temperature 3", Sampling { temperature: 3.0, ..open() }, &LOGITS),
        ("the highest temperature is flat", Sampling { temperature: f32::MAX, ..open() }, &LOGITS),
        ("top_p 0.8", Sampling { top_p: 0.8, ..open() }, &LOGITS),
        ("min_p and temperature", Sampling { min_p: 0.2, temperature: 2.0, ..open() }, &LOGITS),
        ("100 equal tokens", open(), &flat),
        ("50 tokens", open(), &bumpy),
        ("50 tokens, top_k 20", Sampling { top_k: 20, ..open() }, &bumpy),
        ("the defaults", Sampling { seed: Some(9), ..Sampling::default() }, &bumpy),
    ];
    let mut table = Table::new("distributions");
    for (name, sampling, logits) in rows {
        let mut sampler = Sampler::new(sampling.clone()).unwrap();
        let filtered = sampler.filtered(logits, &[]).unwrap();
        let mut counts = vec![0; logits.len()];
        for _ in 0..50_000 {
            counts[sampler.pick(&mut logits.to_vec(), &[]).unwrap() as usize] += 1;
        }
        let (kept, probabilities): (Vec<u32>, Vec<f64>) =
            filtered.iter().map(|&(id, p)| (counts[id as usize], p)).unzip();
        let outcome = match deviation(&kept, &probabilities) {
            _ if kept.iter().sum::<u32>() != 50_000 => Err("a token outside of the kept set was drawn".to_string()),
            far if far.abs() > 4.0 => Err(format!("{far} deviations from {probabilities:?}: {kept:?}")),
            _ => Ok(()),
        };
        table.row(name, outcome);
    }
    // The first draw of neighbouring seeds is as even as the draws of one.
    let mut counts = vec![0; 100];
    for seed in 0..20_000 {
        let mut sampler = Sampler::new(Sampling { seed: Some(seed), ..open() }).unwrap();
        counts[sampler.pick(&mut flat.clone(), &[]).unwrap() as usize] += 1;
    }
    let far = deviation(&counts, &[0.01; 100]);
    table.row("first draws of 20,000 seeds", if far.abs() < 4.0 { Ok(()) } else { Err(format!("{far}: {counts:?}")) });
    table.finish();
}

/// The stream of a seed is a promise. The numbers come from PCG64 (XSL-RR 128/64) written anew in Python:
/// floor(1000 u) of the first eight, which equally likely tokens show.
#[rustfmt::skip]
const STREAMS: [(u64, [u32; 8]); 3] = [
    (0, [798, 572, 500, 831, 60, 791, 587, 32]),
    (42, [497, 555, 530, 284, 666, 985, 260, 862]),
    (u64::MAX, [683, 742, 509, 295, 371, 290, 71, 430]),
];

#[test]
fn a_seed_gives_the_same_stream_for_ever() {
    let mut table = Table::new("seeds");
    for (seed, want) in STREAMS {
        let mut sampler = Sampler::new(Sampling { seed: Some(seed), ..open() }).unwrap();
        let got: Vec<u32> = (0..8).map(|_| sampler.pick(&mut [0.0; 1000], &[]).unwrap()).collect();
        table.row(&format!("seed {seed}"), equal(got, want.to_vec()).and(equal(sampler.seed(), seed)));
    }
    table.finish();
}

#[test]
fn seeds_are_random_unless_given() {
    let unseeded = || Sampler::new(Sampling { seed: None, ..open() }).unwrap();
    let answer =
        |mut sampler: Sampler| -> Vec<u32> { (0..20).map(|_| sampler.pick(&mut [0.0; 1000], &[]).unwrap()).collect() };
    let (one, two) = (unseeded(), unseeded());
    assert_ne!(one.seed(), two.seed());
    let again = Sampler::new(Sampling { seed: Some(one.seed()), ..open() }).unwrap();
    let (one, two, again) = (answer(one), answer(two), answer(again));
    assert_ne!(one, two);
    assert_eq!(one, again);
    // Temperature 0 does not look at the seed.
    for seed in [None, Some(1), Some(2), Some(3)] {
        assert_eq!(answer(Sampler::new(Sampling { seed, ..Sampling::greedy() }).unwrap()), [0; 20]);
    }
}

#[test]
fn low_temperatures_do_not_divide_by_zero() {
    for temperature in [1e-3, 1e-30, f32::MIN_POSITIVE, 1e-45] {
        let mut sampler = Sampler::new(Sampling { temperature, ..open() }).unwrap();
        let got: Vec<u32> = (0..20).map(|_| sampler.pick(&mut LOGITS.clone(), &[]).unwrap()).collect();
        assert_eq!(got, [0; 20], "temperature {temperature}");
        let mut extreme = [f32::MIN, f32::MAX, 0.0];
        assert_eq!(sampler.pick(&mut extreme, &[]).unwrap(), 1, "temperature {temperature}");
    }
}

#[test]
fn bad_arguments_are_named() {
    let open = open();
    let rows = [
        ("temperature", Sampling { temperature: -1.0, ..open.clone() }),
        ("temperature", Sampling { temperature: f32::NAN, ..open.clone() }),
        ("temperature", Sampling { temperature: f32::INFINITY, ..open.clone() }),
        ("top_p", Sampling { top_p: -0.1, ..open.clone() }),
        ("top_p", Sampling { top_p: 1.1, ..open.clone() }),
        ("top_p", Sampling { top_p: f32::NAN, ..open.clone() }),
        ("min_p", Sampling { min_p: -0.1, ..open.clone() }),
        ("min_p", Sampling { min_p: 2.0, ..open.clone() }),
        ("repeat_penalty", Sampling { repeat_penalty: 0.0, ..open.clone() }),
        ("repeat_penalty", Sampling { repeat_penalty: -2.0, ..open.clone() }),
        ("repeat_penalty", Sampling { repeat_penalty: f32::NAN, ..open.clone() }),
        ("frequency_penalty", Sampling { frequency_penalty: f32::INFINITY, ..open.clone() }),
        ("presence_penalty", Sampling { presence_penalty: f32::NAN, ..open.clone() }),
    ];
    let mut table = Table::new("bad arguments");
    for (what, sampling) in rows {
        let outcome = match Sampler::new(sampling.clone()) {
            Err(Error::Argument { what: named, .. }) => equal(named.as_str(), what),
            other => Err(format!("{other:?}")),
        };
        table.row(&format!("{sampling:?}"), outcome);
    }
    let pick = |sampling: Sampling, logits: &[f32], tokens: &[u32]| -> Result<u32> {
        Sampler::new(sampling)?.pick(&mut logits.to_vec(), tokens)
    };
    let barred = |barred: &[u32]| Sampling { barred: barred.to_vec(), ..open.clone() };
    let penalty = Sampling { repeat_penalty: 2.0, ..open.clone() };
    for (name, got, part) in [
        ("a barred id outside", pick(barred(&[5]), &LOGITS, &[]), "an id below 5, got 5"),
        ("everything barred", pick(barred(&[0, 1]), &LOGITS[..2], &[]), "not barred"),
        ("everything barred, greedy", pick(Sampling { temperature: 0.0, ..barred(&[0]) }, &[1.0], &[]), "not barred"),
        ("no logits", pick(open.clone(), &[], &[]), "a token"),
        ("a token outside", pick(penalty, &LOGITS, &[7]), "an id below 5, got 7"),
        ("NaN", pick(open.clone(), &[0.0, f32::NAN], &[3, 4, 5]), "position 2 are not finite (id 1 has NaN)"),
        ("infinity", pick(open.clone(), &[f32::INFINITY, 1.0], &[3]), "position 0 are not finite (id 0 has inf)"),
        ("minus infinity", pick(Sampling::greedy(), &[0.0, f32::NEG_INFINITY], &[]), "id 1 has -inf"),
    ] {
        table.row(
            name,
            match got {
                Err(e) if e.to_string().contains(part) => Ok(()),
                other => Err(format!("{other:?}, expected an error with {part:?}")),
            },
        );
    }
    table.finish();
}

/// What a stream of pieces shows, and whether it was stopped.
fn stream(stops: &[&str], pieces: &[&str]) -> (String, bool) {
    let mut stop = StopStrings::new(stops.iter().map(|stop| stop.to_string()).collect()).unwrap();
    let mut shown = String::new();
    let mut stopped = false;
    for piece in pieces {
        let (text, now) = stop.push(piece);
        shown += &text;
        assert!(now || !stopped, "it stays stopped");
        stopped = now;
    }
    (shown + &stop.finish(), stopped)
}

/// (what, stop strings, pieces, shown, stopped)
type StopRow<'a> = (&'a str, &'a [&'a str], &'a [&'a str], &'a str, bool);

#[test]
fn stop_strings_cut_exactly() {
    #[rustfmt::skip]
    let rows: &[StopRow] = &[
        ("over a token border", &[" sat on"], &["the cat", " s", "at", " on", " the"], "the cat", true),
        ("inside of a token with more behind", &["\n\n"], &["Hello", " there!\n\nUser"], "Hello there!", true),
        ("at the very beginning", &["Hi"], &["Hi", " there"], "", true),
        ("not there", &["xyz"], &["some", " text"], "some text", false),
        ("begun at the end, given back", &["<end>"], &["a <en"], "a <en", false),
        ("begun, then something else", &["<end>"], &["a <e", "nt", "er>"], "a <enter>", false),
        ("begun again inside of itself", &["aab"], &["a", "a", "a", "b", "c"], "a", true),
        ("the first of several", &["dog", "cat"], &["a cat", " and a dog"], "a ", true),
        ("several in one piece", &["dog", "cat"], &["a dog and a cat"], "a ", true),
        ("two that end together: the longer", &["b", "ab"], &["x", "a", "b"], "x", true),
        ("two that begin together: the shorter", &["ab", "abc"], &["xabc"], "x", true),
        ("complete first wins", &["abcd", "c"], &["xabcd"], "xab", true),
        ("in pieces the same", &["abcd", "c"], &["x", "a", "b", "c", "d"], "xab", true),
        ("characters of several bytes", &["日本"], &["in 日", "本 now"], "in ", true),
        ("a character that shares bytes", &["日本"], &["日", "木"], "日木", false),
        ("none at all", &[], &["a", "b"], "ab", false),
        ("empty pieces", &["ab"], &["", "a", "", "b", ""], "", true),
    ];
    let mut table = Table::new("stop strings");
    for (name, stops, pieces, want, stopped) in rows {
        table.row(name, equal(stream(stops, pieces), (want.to_string(), *stopped)));
    }
    let empty = StopStrings::new(vec!["ok".into(), String::new()]);
    table.row(
        "an empty one is an error",
        match empty {
            Err(Error::Argument { what, .. }) => equal(what.as_str(), "stop string"),
            other => Err(format!("{other:?}")),
        },
    );
    table.finish();
}

#[test]
fn only_a_possible_beginning_is_held_back() {
    let mut stop = StopStrings::new(vec!["<end>".into(), "\n\n".into()]).unwrap();
    let shown = ["a", "<", "b<e", "nd", "\n", "c", "x\n"].map(|piece| stop.push(piece).0);
    assert_eq!(shown, ["a", "", "<b", "", "<end", "\nc", "x"]);
    assert_eq!(stop.finish(), "\n");
    assert_eq!(stop.finish(), "");
}

/// The whole text at once: after which character is a stop string complete for the first time?
fn cut(text: &str, stops: &[String]) -> (String, bool) {
    for end in (0..=text.len()).filter(|&i| text.is_char_boundary(i)) {
        if let Some(longest) = stops.iter().filter(|stop| text[..end].ends_with(*stop)).map(String::len).max() {
            return (text[..end - longest].to_string(), true);
        }
    }
    (text.to_string(), false)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(2000) })]

    /// However a text comes in pieces, what is shown is the whole text cut once. Few letters, so that stops occur.
    #[test]
    fn pieces_do_not_matter(pieces in prop::collection::vec("[ab日é]{0,4}", 0..8), stops in prop::collection::vec("[ab日é]{1,4}", 0..4)) {
        let refs: Vec<&str> = stops.iter().map(String::as_str).collect();
        let parts: Vec<&str> = pieces.iter().map(String::as_str).collect();
        prop_assert_eq!(stream(&refs, &parts), cut(&pieces.concat(), &stops));
    }
}
