//! Choosing the next token from the logits [V], on the CPU, and stopping at stop strings. shaders/sample.wgsl makes the
//! same choice on the GPU.
//! The order is fixed: penalties, top-k, top-p, min-p, then the temperature, so that a high temperature
//! flattens what the filters kept and lets nothing back in.

mod stop;

use crate::error::{Error, Result};
use crate::kernels::sample::MAX_K;
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::cmp::Ordering;
use std::collections::HashMap;

pub use stop::StopStrings;

/// How the next token is chosen. Every filter has a value that turns it off.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampling {
    /// 0 takes the most likely token (the lowest id among equals) and needs no random numbers; 1 leaves the
    /// probabilities as the model gives them.
    pub temperature: f32,
    /// Keep the k most likely tokens; 0 keeps all.
    pub top_k: u32,
    /// Keep the most likely tokens whose probabilities together reach this, at least one; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this times the most likely one; 0 keeps all.
    pub min_p: f32,
    /// Makes tokens of the last `repeat_last_n` less likely: their logits are divided by it above 0 and multiplied at
    /// or below 0. 1 is off.
    pub repeat_penalty: f32,
    /// How many of the last tokens, prompt and answer, the repeat penalty sees.
    pub repeat_last_n: u32,
    /// Subtracted from a token's logit for each time the answer has it already; 0 is off.
    pub frequency_penalty: f32,
    /// Subtracted once from the logit of every token that the answer has already; 0 is off.
    pub presence_penalty: f32,
    /// None takes a random seed; [`Sampler::seed`] tells which.
    pub seed: Option<u64>,
    /// Tokens that are never chosen. To ignore the end of an answer, bar every end token, not the EOS alone.
    pub barred: Vec<u32>,
}

impl Default for Sampling {
    fn default() -> Sampling {
        Sampling {
            temperature: 0.8,
            top_k: 40,
            top_p: 0.95,
            min_p: 0.05,
            repeat_penalty: 1.0,
            repeat_last_n: 64,
            frequency_penalty: 0.0,
            presence_penalty: 0.0,
            seed: None,
            barred: Vec::new(),
        }
    }
}

impl Sampling {
    /// The most likely token, always; nothing is penalised.
    pub fn greedy() -> Sampling {
        Sampling { temperature: 0.0, ..Sampling::default() }
    }

    /// Whether [`crate::Session::generate`] chooses on the GPU, so that only ids come back: greedily, or with a top-k of 1
    /// to 256. Without a top-k, or with a larger one, the logits of every token come back and [`Sampler::pick`] chooses.
    pub fn on_gpu(&self) -> bool {
        self.temperature == 0.0 || (1..=MAX_K).contains(&self.top_k)
    }

    pub(crate) fn penalizes(&self) -> bool {
        self.repeat_penalty != 1.0 || self.frequency_penalty != 0.0 || self.presence_penalty != 0.0
    }

    fn check(&self) -> Result<()> {
        let within = |what: &str, value: f32, ok: bool, expected: &str| match ok && value.is_finite() {
            true => Ok(()),
            false => Err(Error::Argument { what: what.into(), expected: expected.into(), got: value.to_string() }),
        };
        within("temperature", self.temperature, self.temperature >= 0.0, "0 (greedy) or more")?;
        within("top_p", self.top_p, (0.0..=1.0).contains(&self.top_p), "0 to 1 (1 is off)")?;
        within("min_p", self.min_p, (0.0..=1.0).contains(&self.min_p), "0 to 1 (0 is off)")?;
        within("repeat_penalty", self.repeat_penalty, self.repeat_penalty > 0.0, "above 0 (1 is off)")?;
        within("frequency_penalty", self.frequency_penalty, true, "a finite number (0 is off)")?;
        within("presence_penalty", self.presence_penalty, true, "a finite number (0 is off)")
    }
}

/// A token that may be chosen.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    id: u32,
    logit: f32,
}

/// The most likely first; the lower id first among equals.
fn likelier(a: &Candidate, b: &Candidate) -> Ordering {
    // Not total_cmp, for which 0 is above -0. The logits are no NaN: that was checked.
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// Chooses tokens. The same seed and the same logits give the same tokens, in later versions and on other platforms
/// too: the generator is PCG64 (XSL-RR 128/64), whose numbers our tests hold, and all sums are f64, so that a platform's
/// own rounding of `exp` changes a token once in some 10^13. One sampler serves one answer.
#[derive(Debug, Clone)]
pub struct Sampler {
    sampling: Sampling,
    seed: u64,
    random: Pcg64,
    /// How often the answer has each token.
    answer: HashMap<u32, u32>,
    /// Kept between calls for its memory.
    candidates: Vec<Candidate>,
}

impl Sampler {
    /// # Errors
    /// [`Error::Argument`] names a value out of range.
    pub fn new(sampling: Sampling) -> Result<Sampler> {
        sampling.check()?;
        let seed = match sampling.seed {
            Some(seed) => seed,
            // Greedy choice uses no random numbers, so any seed will do.
            None if sampling.temperature == 0.0 => 0,
            None => random_seed(),
        };
        // The generator's own constructor: `seed_from_u64` belongs to rand_core, which may change it.
        let random = Pcg64::new(seed as u128, STREAM);
        Ok(Sampler { sampling, seed, random, answer: HashMap::new(), candidates: Vec::new() })
    }

    /// The seed in use: with it the same answer comes again.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    pub fn sampling(&self) -> &Sampling {
        &self.sampling
    }

    /// The next token. `logits` [V] are those of the last position; the penalties and the barred tokens are written into
    /// them, so they serve once. `tokens` is everything so far, prompt and answer.
    ///
    /// # Errors
    /// [`Error::NotFinite`] for a NaN or infinite logit; [`Error::Argument`] for an id that is not in the vocabulary,
    /// and where all tokens are barred.
    pub fn pick(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<u32> {
        self.filter(logits, tokens)?;
        let id = if self.sampling.temperature == 0.0 { self.candidates[0].id } else { self.draw() };
        self.note(id);
        Ok(id)
    }

    /// Counts a token of the answer that was chosen elsewhere.
    pub fn note(&mut self, id: u32) {
        *self.answer.entry(id).or_insert(0) += 1;
    }

    /// The random number of the next choice, 0 to 1; a greedy one takes none.
    pub fn random(&mut self) -> f64 {
        if self.sampling.temperature == 0.0 {
            return 0.0;
        }
        // 53 random bits: every f64 of this spacing in 0..1 is equally likely.
        (self.random.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Tokens of the answer so far, and how often it has each.
    pub(crate) fn answer(&self) -> impl Iterator<Item = (u32, u32)> {
        self.answer.iter().map(|(&id, &count)| (id, count))
    }

    /// The tokens that [`Sampler::pick`] would choose from and their probabilities (temperature included), the most
    /// likely first. Same arguments and errors, but the logits stay as they are and no random number is drawn.
    pub fn filtered(&mut self, logits: &[f32], tokens: &[u32]) -> Result<Vec<(u32, f64)>> {
        self.filter(&mut logits.to_vec(), tokens)?;
        self.candidates.sort_unstable_by(likelier);
        let temperature = self.temperature();
        let total: f64 = weights(&self.candidates, temperature).sum();
        let ids = self.candidates.iter().map(|candidate| candidate.id);
        Ok(ids.zip(weights(&self.candidates, temperature).map(|weight| weight / total)).collect())
    }

    /// Applies the penalties to the logits [V] and nothing else.
    pub fn penalize(&self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        let Sampling { repeat_penalty, repeat_last_n, frequency_penalty, presence_penalty, .. } = self.sampling;
        let vocab = logits.len();
        let change = |logits: &mut [f32], id: u32, change: &dyn Fn(f32) -> f32| {
            let logit = logits.get_mut(id as usize).ok_or_else(|| outside("a token", id, vocab))?;
            // An extreme penalty must not make an infinity, which would be taken for a broken model.
            *logit = change(*logit).clamp(f32::MIN, f32::MAX);
            Ok(())
        };
        if repeat_penalty != 1.0 {
            let mut recent = tokens[tokens.len().saturating_sub(repeat_last_n as usize)..].to_vec();
            recent.sort_unstable();
            recent.dedup();
            for id in recent {
                change(logits, id, &|x| if x > 0.0 { x / repeat_penalty } else { x * repeat_penalty })?;
            }
        }
        if frequency_penalty != 0.0 || presence_penalty != 0.0 {
            for (&id, &count) in &self.answer {
                change(logits, id, &|x| x - count as f32 * frequency_penalty - presence_penalty)?;
            }
        }
        Ok(())
    }

    /// Fills `candidates` with what the penalties, top-k, top-p and min-p leave: at least one, in no promised order
    /// except that greedy choice leaves exactly one.
    fn filter(&mut self, logits: &mut [f32], tokens: &[u32]) -> Result<()> {
        if let Some(id) = logits.iter().position(|logit| !logit.is_finite()) {
            let position = tokens.len().saturating_sub(1) as u32;
            return Err(Error::NotFinite { position, id: id as u32, value: logits[id] });
        }
        self.penalize(logits, tokens)?;
        for &id in &self.sampling.barred {
            let vocab = logits.len();
            *logits.get_mut(id as usize).ok_or_else(|| outside("a barred token", id, vocab))? = f32::NEG_INFINITY;
        }

        let mut candidates = std::mem::take(&mut self.candidates);
        candidates.clear();
        let all = logits.iter().enumerate().map(|(id, &logit)| Candidate { id: id as u32, logit });
        let all = all.filter(|candidate| candidate.logit != f32::NEG_INFINITY);
        let Sampling { temperature, top_k, top_p, min_p, .. } = self.sampling;
        if temperature == 0.0 {
            candidates.extend(all.min_by(likelier));
        } else {
            candidates.extend(all);
        }
        if candidates.is_empty() {
            return Err(all_barred(logits.len()));
        }
        if top_k != 0 {
            keep_likeliest(&mut candidates, top_k as usize);
        }
        if top_p < 1.0 {
            keep_top_p(&mut candidates, top_p as f64);
        }
        if min_p > 0.0 {
            let largest = largest(&candidates);
            candidates.retain(|candidate| (candidate.logit as f64 - largest).exp() >= min_p as f64);
        }
        self.candidates = candidates;
        Ok(())
    }

    /// One of the candidates, each with its probability.
    fn draw(&mut self) -> u32 {
        let temperature = self.temperature();
        let mut rest = self.random() * weights(&self.candidates, temperature).sum::<f64>();
        let mut last = self.candidates[0].id;
        for (candidate, weight) in self.candidates.iter().zip(weights(&self.candidates, temperature)) {
            if weight > 0.0 {
                last = candidate.id; // rounding may leave a rest behind the last one
                rest -= weight;
            }
            if rest < 0.0 {
                break;
            }
        }
        last
    }

    /// The temperature to divide by: greedy choice leaves one candidate, whose probability is 1 at any temperature.
    fn temperature(&self) -> f64 {
        if self.sampling.temperature == 0.0 { 1.0 } else { self.sampling.temperature as f64 }
    }
}

/// Any constant does; this one is PCG's own default stream.
const STREAM: u128 = 0xa02bdbf7bb3c0a7ac28fa16a64abf96;

/// 32 bits are enough to differ and short enough to be typed again.
#[cfg(not(target_arch = "wasm32"))]
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    // Each RandomState has other keys, which the standard library takes from the system's random numbers.
    std::collections::hash_map::RandomState::new().build_hasher().finish() >> 32
}

#[cfg(target_arch = "wasm32")]
fn random_seed() -> u64 {
    (js_sys::Math::random() * 2f64.powi(32)) as u64
}

pub(crate) fn all_barred(vocab: usize) -> Error {
    let (expected, got) = ("a token that is not barred".into(), format!("{vocab} barred tokens"));
    Error::Argument { what: "choosing a token".into(), expected, got }
}

pub(crate) fn outside(what: &str, id: u32, vocab: usize) -> Error {
    Error::Argument { what: what.into(), expected: format!("an id below {vocab}"), got: id.to_string() }
}

fn largest(candidates: &[Candidate]) -> f64 {
    candidates.iter().map(|candidate| candidate.logit).fold(f32::NEG_INFINITY, f32::max) as f64
}

/// exp((logit - largest) / temperature): the probabilities times a common factor.
fn weights(candidates: &[Candidate], temperature: f64) -> impl Iterator<Item = f64> {
    let largest = largest(candidates);
    candidates.iter().map(move |candidate| ((candidate.logit as f64 - largest) / temperature).exp())
}

/// Keeps the k likeliest, sorted. Selecting first costs V steps; only the k are sorted.
fn keep_likeliest(candidates: &mut Vec<Candidate>, k: usize) {
    if k < candidates.len() {
        candidates.select_nth_unstable_by(k - 1, likelier);
        candidates.truncate(k);
    }
    candidates.sort_unstable_by(likelier);
}

/// Keeps the shortest run of the likeliest whose probabilities reach `top_p`, at least one, sorted.
/// The run is short for most logits, so the vocabulary is sorted piece by piece until the run is found.
fn keep_top_p(candidates: &mut Vec<Candidate>, top_p: f64) {
    let goal = top_p * weights(candidates, 1.0).sum::<f64>();
    let largest = largest(candidates);
    let (mut sorted, mut sum, mut piece) = (0, 0.0, 256);
    while sorted < candidates.len() {
        let rest = &mut candidates[sorted..];
        if piece < rest.len() {
            rest.select_nth_unstable_by(piece - 1, likelier);
        }
        let end = piece.min(rest.len());
        rest[..end].sort_unstable_by(likelier);
        for (i, candidate) in rest[..end].iter().enumerate() {
            sum += (candidate.logit as f64 - largest).exp();
            if sum >= goal {
                candidates.truncate(sorted + i + 1);
                return;
            }
        }
        sorted += end;
        piece *= 4;
    }
}
