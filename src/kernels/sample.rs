//! The choice of the next token among the k likeliest; k = 1 takes the best.

use super::reduce;
use crate::error::Result;
use crate::gpu::Gpu;
use crate::kernel::{KernelKey, params};
use crate::plan::{Cost, Grid, PlanBuilder};
use crate::sampling::{Sampler, Sampling, outside};
use crate::tensor::Tensor;

params! { SampleParams { cols: u32, peaks: u32, depth: u32, } }

// The rules of one token's choice. Twin of `struct Settings` in shaders/sampling.wgsl.
params! {
    Settings {
        k: u32,
        penalized: u32,
        repeat_penalty: f32,
        repeat_last_n: u32,
        frequency_penalty: f32,
        presence_penalty: f32,
        top_p: f32,
        min_p: f32,
        temperature: f32,
        random: f32,
    }
}

/// Twin of `struct Mark` in shaders/sampling.wgsl: what the penalties know of a token of the vocabulary.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
pub struct Mark {
    /// How often the last tokens have it, and [`Mark::BARRED`].
    pub recent: u32,
    /// How often the answer has it.
    pub answer: u32,
}

impl Settings {
    /// For what [`Sampling::on_gpu`] is; `random` is left to the caller.
    pub fn of(sampling: &Sampling, vocab: u32) -> Settings {
        let greedy = sampling.temperature == 0.0;
        Settings {
            k: if greedy { 1 } else { sampling.top_k.min(MAX_K).min(vocab) },
            penalized: (sampling.penalizes() || !sampling.barred.is_empty()) as u32,
            repeat_penalty: sampling.repeat_penalty,
            repeat_last_n: sampling.repeat_last_n,
            frequency_penalty: sampling.frequency_penalty,
            presence_penalty: sampling.presence_penalty,
            top_p: sampling.top_p,
            min_p: sampling.min_p,
            temperature: if greedy { 1.0 } else { sampling.temperature },
            random: 0.0,
        }
    }
}

impl Mark {
    pub const BARRED: u32 = 1 << 31;

    /// Of every token of the vocabulary, after `tokens`, prompt and answer.
    ///
    /// # Errors
    /// [`crate::Error::Argument`] for a barred token that is not in the vocabulary.
    pub fn all(sampler: &Sampler, tokens: &[u32], vocab: u32) -> Result<Vec<Mark>> {
        let mut marks = vec![Mark::default(); vocab as usize];
        let Sampling { repeat_last_n, barred, .. } = sampler.sampling();
        for &id in &tokens[tokens.len().saturating_sub(*repeat_last_n as usize)..] {
            marks[id as usize].recent += 1;
        }
        for (id, count) in sampler.answer() {
            marks[id as usize].answer = count;
        }
        for &id in barred {
            let mark = marks.get_mut(id as usize).ok_or_else(|| outside("a barred token", id, vocab as usize))?;
            mark.recent |= Mark::BARRED;
        }
        Ok(marks)
    }
}

/// The largest k.
pub const MAX_K: u32 = 256;
/// Groups of tokens at most.
const MAX_PEAKS: u32 = 1024;
/// Groups that are searched for the k likeliest tokens at most: shaders/sample.wgsl.
const MAX_CUT: u32 = MAX_K + 64;

/// What a choice works on and leaves. The host fills `settings` before every choice; where they say `penalized` it fills
/// `marks` and `history` before the first, and the kernel keeps both up to date.
pub struct Sample {
    pub settings: wgpu::Buffer, // Settings
    pub marks: wgpu::Buffer,    // [V] Mark
    pub history: wgpu::Buffer,  // [context + 1] u32, by position
    items: Tensor,              // [peaks + MAX_CUT depth] pairs of u32
    pub chosen: Tensor,         // [4] u32: see Chosen
    vocab: u32,
}

/// What `Sample::chosen` says.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Chosen {
    Id(u32),
    /// This token's logit is NaN or infinite.
    NotFinite {
        id: u32,
        value: f32,
    },
    AllBarred,
}

impl Chosen {
    pub const BYTES: u64 = 16;

    /// From the bytes of `Sample::chosen`.
    pub fn read(bytes: &[u8]) -> Chosen {
        let words: Vec<u32> = bytemuck::pod_collect_to_vec(bytes);
        match words[1] {
            0 => Chosen::Id(words[0]),
            1 => Chosen::NotFinite { id: words[0], value: f32::from_bits(words[2]) },
            _ => Chosen::AllBarred,
        }
    }
}

impl Sample {
    /// For logits [V] of a sequence of up to `context` tokens.
    pub fn new(gpu: &Gpu, vocab: u32, context: u32) -> Result<Sample> {
        let items = MAX_PEAKS.min(vocab) + MAX_CUT * depth(vocab);
        Ok(Sample {
            settings: gpu.buffer("sampling settings", size_of::<Settings>() as u64)?,
            marks: gpu.buffer("marks for penalties", vocab as u64 * size_of::<Mark>() as u64)?,
            history: gpu.buffer("tokens for penalties", (context as u64 + 1) * 4)?,
            items: Tensor::new(gpu, "peaks and pool", 1, 2 * items)?,
            chosen: Tensor::new(gpu, "chosen token", 1, Chosen::BYTES as u32 / 4)?,
            vocab,
        })
    }
}

/// Tokens of a group at most.
fn depth(vocab: u32) -> u32 {
    vocab.div_ceil(MAX_PEAKS.min(vocab))
}

/// logits [V] -> the choice, in `s.chosen` and in ids [1], where the next pass finds it. `frame.position` is the place
/// that the chosen token will have.
pub fn sample(plan: &mut PlanBuilder, label: &str, logits: &Tensor, s: &Sample, ids: &wgpu::Buffer) -> Result<()> {
    assert!(logits.cols == s.vocab, "{label}: {} logits, made for {}", logits.cols, s.vocab);
    let (cols, peaks) = (s.vocab, MAX_PEAKS.min(s.vocab));
    let params = SampleParams { cols, peaks, depth: depth(cols) };
    let mut buffers =
        vec![("logits", &logits.buffer), ("settings", &s.settings), ("marks", &s.marks), ("items", &s.items.buffer)];
    let key = KernelKey::new(&[&["sampling.wgsl", "peaks.wgsl"]]);
    plan.step(&format!("{label}.peaks"), &key, params, &buffers, Grid::once(peaks.div_ceil(64)), &s.items)?;
    plan.note(format!("[{cols}]"));
    plan.cost(Cost { token_bytes: cols as u64 * 4, ..Cost::default() });
    buffers.extend([("history", &s.history), ("ids", ids), ("chosen", &s.chosen.buffer)]);
    let key = KernelKey::new(&[&["frame.wgsl", reduce(&plan.gpu), "sampling.wgsl", "draw.wgsl", "sample.wgsl"]]);
    plan.step(label, &key, params, &buffers, Grid::once(1), &s.chosen)?;
    plan.note(format!("[{peaks}] of [{cols}]"));
    Ok(())
}
