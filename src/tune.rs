//! Tuning: which profile runs a model fastest on a device, found by trying. [`Gpu`] chooses by the device's class; here
//! the model's own plans run. Nothing is tuned unless it is asked for, and nothing is kept: that is the caller's.

use crate::bench::median;
use crate::error::Result;
use crate::files;
use crate::gguf::Gguf;
use crate::gpu::{Gpu, Profile};
use crate::kernel::KernelKey;
use crate::model::Model;
use crate::session::SessionOptions;
use std::collections::HashSet;
use std::time::{Duration, Instant};

/// Measurements of a profile, of which the median counts. In each round every profile has its turn, so that what slows
/// the device for a while slows all of them.
const ROUNDS: usize = 3;
/// Tokens decoded in a measurement.
const DECODED: u32 = 4;
/// Tokens of the first prefill, which shows how many the budget allows.
const FEW: u32 = 64;
/// The request that should take the least time: tokens of its prompt and of its answer.
const REQUEST: (f64, f64) = (512.0, 128.0);
/// Another profile than the device's own must save this share of the time: less may be chance.
const GAIN: f64 = 0.05;

/// A profile and how fast it is.
#[derive(Debug, Clone)]
pub struct Trial {
    pub profile: Profile,
    /// Tokens of the prompt with which it was measured.
    pub prompt: u32,
    /// Tokens a second.
    pub prefill: f64,
    pub decode: f64,
}

#[derive(Debug, Clone)]
pub struct Tuning {
    /// The device's own profile first; then those that differ in their kernels; then the best of these with several
    /// chunks. What the budget did not suffice for is missing.
    pub trials: Vec<Trial>,
    /// The index of the fastest.
    pub best: usize,
}

impl Tuning {
    /// For [`Gpu::with_profile`] or [`Model::with_profile`].
    pub fn profile(&self) -> Profile {
        self.trials[self.best].profile
    }
}

/// Tries profiles on a loaded model. Those that the device cannot run are left out; the device's own is always measured,
/// another is begun only while `budget` lasts.
pub async fn tune(model: &Model, options: &SessionOptions, budget: Duration) -> Result<Tuning> {
    let deadline = Instant::now() + budget;
    let longest = model.config().context_length.saturating_sub(DECODED + 2).max(1);
    let (few, own) = (FEW.min(longest), model.gpu().profile());
    let profiles = unlike(model, options, candidates(model.gpu()))?;

    let mut first = Runs::new(own);
    first.measure(model, options, few).await?;
    let whole = own.chunk.min(longest);
    let all = first.prefill[0] * whole as f64 * (ROUNDS * profiles.len()) as f64;
    let prompt = if all < budget.as_secs_f64() / 2.0 { whole } else { few };
    let all = contest(model, options, &profiles, prompt, deadline).await?;
    let mut best = fastest(&all);
    let mut trials: Vec<Trial> = all.iter().map(|runs| runs.trial(prompt)).collect();

    let Trial { profile, prefill, .. } = trials[best];
    let prompt = (2 * own.chunk).min(longest);
    let pass = Duration::from_secs_f64(prompt as f64 / prefill);
    if Instant::now() + 4 * pass < deadline {
        let chunks = [own.chunk, own.chunk / 2, 2 * own.chunk];
        let profiles = chunks.map(|chunk| Profile { chunk, ..profile });
        let mut chunked = contest(model, options, &profiles, prompt, deadline - pass).await?;
        chunked.iter_mut().for_each(|runs| runs.decode = vec![median(&all[best].decode); runs.decode.len()]); // no chunks
        best = trials.len() + fastest(&chunked);
        trials.extend(chunked.iter().map(|runs| runs.trial(prompt)));
    }
    Ok(Tuning { trials, best })
}

/// Profiles that this device can run and that may be its fastest, its own first. A new knob of [`Profile`] belongs here.
pub fn candidates(gpu: &Gpu) -> Vec<Profile> {
    let (card, own) = (gpu.card(), gpu.profile());
    let groups = Profile { lanes: false, eights: false, int8: false, ..own };
    let lanes = Profile { lanes: true, matrix: None, ..own };
    let has_eights = own.subgroups && card.subgroup_size == (8, 8);
    let mut all = vec![own];
    for subgroups in [card.subgroups, false] {
        all.extend([own.matrix, None].map(|matrix| Profile { subgroups, matrix, ..groups }));
    }
    for eights in [has_eights, false] {
        all.extend([false, true].map(|int8| Profile { eights, int8, ..lanes }));
    }
    let mut unlike: Vec<Profile> = Vec::new();
    for profile in all {
        if !unlike.contains(&profile) {
            unlike.push(profile);
        }
    }
    unlike
}

/// Without those that run this model by the same kernels as one before: a profile for formats that it lacks, say.
fn unlike(model: &Model, options: &SessionOptions, profiles: Vec<Profile>) -> Result<Vec<Profile>> {
    let mut unlike: Vec<(Profile, HashSet<KernelKey>)> = Vec::new();
    for profile in profiles {
        let outline = model.with_profile(profile).outline();
        outline.session(options)?;
        let kernels: HashSet<KernelKey> = outline.gpu().kernel_keys().into_iter().collect();
        if !unlike.iter().any(|(_, known)| *known == kernels) {
            unlike.push((profile, kernels));
        }
    }
    Ok(unlike.into_iter().map(|(profile, _)| profile).collect())
}

/// The shapes and formats of a model's matrices, as one number: models that agree in it are tuned alike.
pub fn shapes(gguf: &Gguf) -> u64 {
    let matrices = gguf.tensors().iter().filter(|tensor| tensor.shape.len() > 1);
    let mut shapes: Vec<String> = matrices.map(|tensor| format!("{:?} {:?}", tensor.kind, tensor.shape)).collect();
    shapes.sort();
    shapes.dedup();
    files::hash(shapes.join("\n").as_bytes())
}

/// Measurements of one profile, in seconds a token.
struct Runs {
    profile: Profile,
    prefill: Vec<f64>,
    decode: Vec<f64>,
}

impl Runs {
    fn new(profile: Profile) -> Runs {
        Runs { profile, prefill: Vec::new(), decode: Vec::new() }
    }

    fn trial(&self, prompt: u32) -> Trial {
        let speed = |seconds: &[f64]| 1.0 / median(seconds);
        Trial { profile: self.profile, prompt, prefill: speed(&self.prefill), decode: speed(&self.decode) }
    }

    async fn measure(&mut self, model: &Model, options: &SessionOptions, prompt: u32) -> Result<()> {
        let context = Some((prompt + DECODED).max(3));
        let options = SessionOptions { context, chunk: None, ..options.clone() };
        let mut session = model.with_profile(self.profile).session(&options)?;
        // Once around without a clock: some drivers compile a pipeline when it first runs.
        for tokens in [&[0, 0][..], &[0]] {
            session.append(tokens).await?;
            session.greedy().await?;
        }
        session.truncate(0);
        let start = Instant::now();
        session.append(&vec![0; prompt as usize]).await?;
        let mut next = session.greedy().await?;
        self.prefill.push(start.elapsed().as_secs_f64() / prompt as f64);
        let start = Instant::now();
        for _ in 0..DECODED {
            session.append(&[next]).await?;
            next = session.greedy().await?;
        }
        self.decode.push(start.elapsed().as_secs_f64() / DECODED as f64);
        Ok(())
    }
}

/// Measures the profiles in turn, round after round; the first one at least once.
async fn contest(
    model: &Model,
    options: &SessionOptions,
    profiles: &[Profile],
    prompt: u32,
    deadline: Instant,
) -> Result<Vec<Runs>> {
    let mut all: Vec<Runs> = profiles.iter().copied().map(Runs::new).collect();
    for turn in 0..ROUNDS * all.len() {
        if turn > 0 && Instant::now() > deadline {
            break;
        }
        let at = turn % all.len();
        all[at].measure(model, options, prompt).await?;
    }
    Ok(all.into_iter().filter(|runs| !runs.decode.is_empty()).collect())
}

/// The index of the one that is fastest at the usual request; the first one's, if none is clearly faster: on the whole,
/// and in every round that both had.
fn fastest(all: &[Runs]) -> usize {
    let rounds = |runs: &Runs| -> Vec<f64> {
        runs.prefill.iter().zip(&runs.decode).map(|(p, d)| REQUEST.0 * p + REQUEST.1 * d).collect()
    };
    let own = rounds(&all[0]);
    let clearly_faster = |runs: &Runs| {
        let these = rounds(runs);
        median(&these) < (1.0 - GAIN) * median(&own) && these.iter().zip(&own).all(|(this, own)| this < own)
    };
    let seconds = |i: &usize| median(&rounds(&all[*i]));
    (0..all.len()).filter(|&i| clearly_faster(&all[i])).min_by(|a, b| seconds(a).total_cmp(&seconds(b))).unwrap_or(0)
}
