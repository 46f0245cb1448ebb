//! The forward ops, one plain function each, named as the kernels are. Numbers go in and out as f32, or as f64 where
//! gradients are checked by differences; sums are kept in f64, so that a kernel's f32 sums are measured against something
//! better than themselves.
//!
//! Tensors are flat slices, last dimension fastest. T tokens, C channels, H heads, KV kv heads, D head size,
//! F feed-forward, V vocabulary. A slice of the wrong length is a mistake of the caller and asserts.

use crate::model::Rope;

/// f32 or f64: what an op takes and gives.
pub trait Number: Copy {
    fn to_f64(self) -> f64;
    fn of(v: f64) -> Self;
}

impl Number for f32 {
    fn to_f64(self) -> f64 {
        self as f64
    }

    fn of(v: f64) -> f32 {
        v as f32
    }
}

impl Number for f64 {
    fn to_f64(self) -> f64 {
        self
    }

    fn of(v: f64) -> f64 {
        v
    }
}

/// Row gather: the embedding of each token. table `[V, C]`, ids `[T]` -> `[T, C]`.
pub fn embed<F: Number>(table: &[F], ids: &[u32], c: usize) -> Vec<F> {
    ids.iter().flat_map(|&id| &table[id as usize * c..][..c]).copied().collect()
}

/// Each row divided by its root mean square, times the gain. x `[T, C]`, gain `[C]` -> `[T, C]`.
pub fn rms_norm<F: Number>(x: &[F], gain: &[F], eps: f32) -> Vec<F> {
    let c = gain.len();
    assert_eq!(x.len() % c, 0, "rms_norm: x holds whole rows of {c}");
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(c) {
        let mean_square = dot(row, row) / c as f64;
        let scale = 1.0 / (mean_square + eps as f64).sqrt();
        out.extend(row.iter().zip(gain).map(|(x, gain)| F::of(x.to_f64() * scale * gain.to_f64())));
    }
    out
}

/// Every row of x with every row of w, as weights lie in GGUF. x `[T, K]`, w `[N, K]` -> `[T, N]`.
pub fn matmul<F: Number>(x: &[F], w: &[F], t: usize, k: usize, n: usize) -> Vec<F> {
    assert_eq!((x.len(), w.len()), (t * k, n * k), "matmul: x is [{t}, {k}], w is [{n}, {k}]");
    let mut out = vec![F::of(0.0); t * n];
    // One row of w is read once for all tokens: weights are what memory is full of.
    for (i, w_row) in w.chunks_exact(k).enumerate() {
        for (j, x_row) in x.chunks_exact(k).enumerate() {
            out[j * n + i] = F::of(dot(x_row, w_row));
        }
    }
    out
}

/// matmul for one token. x `[K]`, w `[N, K]` -> `[N]`.
pub fn matvec<F: Number>(x: &[F], w: &[F], k: usize, n: usize) -> Vec<F> {
    matmul(x, w, 1, k, n)
}

/// x `[T, N]` + bias `[N]` on every row -> `[T, N]`.
pub fn add_bias<F: Number>(x: &[F], bias: &[F]) -> Vec<F> {
    assert_eq!(x.len() % bias.len(), 0, "add_bias: x holds whole rows of {}", bias.len());
    x.iter().zip(bias.iter().cycle()).map(|(x, bias)| F::of(x.to_f64() + bias.to_f64())).collect()
}

/// Turns the pairs of every head by position times frequency. x `[T, H, D]`, positions `[T]` -> `[T, H, D]`.
pub fn rope<F: Number>(x: &[F], positions: &[u32], h: usize, d: usize, rope: &Rope) -> Vec<F> {
    assert_eq!(x.len(), positions.len() * h * d, "rope: x is [{}, {h}, {d}]", positions.len());
    let magnitude = rope.magnitude as f64;
    let mut out = x.to_vec();
    for (token, &position) in out.chunks_exact_mut(h * d).zip(positions) {
        for (i, &inv_freq) in rope.inv_freq.iter().enumerate() {
            let (sin, cos) = (position as f64 * inv_freq as f64).sin_cos();
            let (first, second) = rope.pair(i);
            for head in token.chunks_exact_mut(d) {
                let (a, b) = (head[first].to_f64(), head[second].to_f64());
                head[first] = F::of((a * cos - b * sin) * magnitude);
                head[second] = F::of((a * sin + b * cos) * magnitude);
            }
        }
    }
    out
}

/// Writes the rows of new tokens into a cache, from `position` on. cache `[ctx, KV, D]`, rows `[T, KV, D]`.
pub fn kv_store<F: Number>(cache: &mut [F], rows: &[F], position: usize, kv: usize, d: usize) {
    cache[position * kv * d..][..rows.len()].copy_from_slice(rows);
}

/// Causal grouped-query attention: the query at position p sees the cache's rows 0..=p, and H/KV neighbouring heads
/// share a kv head. q `[T, H, D]`, k and v `[ctx, KV, D]`, `position` is that of q's first row -> `[T, H, D]`.
pub fn attention<F: Number>(q: &[F], k: &[F], v: &[F], position: usize, h: usize, kv: usize, d: usize) -> Vec<F> {
    assert_eq!(h % kv, 0, "attention: {kv} kv heads share {h} heads evenly");
    assert_eq!(q.len() % (h * d), 0, "attention: q holds whole rows of [{h}, {d}]");
    let heads_per_kv = h / kv;
    let scale = 1.0 / (d as f64).sqrt();
    let mut out = Vec::with_capacity(q.len());
    for (i, q_head) in q.chunks_exact(d).enumerate() {
        let (token, head) = (i / h, i % h);
        let row = |cache_row: usize| (cache_row * kv + head / heads_per_kv) * d;
        let seen = position + token + 1;

        let mut scores: Vec<f64> = (0..seen).map(|j| dot(q_head, &k[row(j)..][..d]) * scale).collect(); // [seen]
        softmax_f64(&mut scores);
        let mut mixed = vec![0.0f64; d];
        for (j, weight) in scores.iter().enumerate() {
            for (sum, v) in mixed.iter_mut().zip(&v[row(j)..][..d]) {
                *sum += weight * v.to_f64();
            }
        }
        out.extend(mixed.iter().map(|&sum| F::of(sum)));
    }
    out
}

/// silu(gate) * up, silu(x) = x / (1 + e^-x). gate, up `[T, F]` -> `[T, F]`.
pub fn swiglu<F: Number>(gate: &[F], up: &[F]) -> Vec<F> {
    assert_eq!(gate.len(), up.len(), "swiglu: gate and up have one shape");
    let silu = |x: f64| x / (1.0 + (-x).exp());
    gate.iter().zip(up).map(|(gate, up)| F::of(silu(gate.to_f64()) * up.to_f64())).collect()
}

/// The residual: a + b, of one shape.
pub fn add<F: Number>(a: &[F], b: &[F]) -> Vec<F> {
    assert_eq!(a.len(), b.len(), "add: a and b have one shape");
    a.iter().zip(b).map(|(a, b)| F::of(a.to_f64() + b.to_f64())).collect()
}

/// Each block of 32 rounded to two signed bytes each with one scale, as floats again. x `[T, K]` -> `[T, K]`.
pub fn quantize(x: &[f32], k: usize) -> Vec<f32> {
    assert_eq!(x.len() % k, 0, "quantize: x holds whole rows of {k}");
    let block = |block: &[f32]| -> Vec<f32> {
        let most = block.iter().map(|v| v.abs()).max_by(f32::total_cmp).unwrap_or(0.0); // NaN is above all
        let scale = most / 127.0;
        let rounded = |v: f32| {
            let high = (v / scale).round_ties_even();
            (high + ((v / scale - high) * 254.0).round_ties_even() / 254.0) * scale
        };
        block.iter().map(|&v| if most < 1e-30 { 0.0 } else { rounded(v) }).collect()
    };
    x.chunks_exact(k).flat_map(|row| row.chunks(32).flat_map(block)).collect()
}

/// Each row to probabilities. x `[T, N]` -> `[T, N]`.
pub fn softmax(x: &[f32], n: usize) -> Vec<f32> {
    assert_eq!(x.len() % n, 0, "softmax: x holds whole rows of {n}");
    let mut out = Vec::with_capacity(x.len());
    for row in x.chunks_exact(n) {
        let mut row: Vec<f64> = row.iter().map(|&x| x as f64).collect();
        softmax_f64(&mut row);
        out.extend(row.iter().map(|&p| p as f32));
    }
    out
}

/// The place of each row's largest number, the lowest place among equals. x `[T, N]`, finite -> `[T]`.
pub fn argmax(x: &[f32], n: usize) -> Vec<u32> {
    assert_eq!(x.len() % n, 0, "argmax: x holds whole rows of {n}");
    x.chunks_exact(n).map(|row| top_place(row) as u32).collect()
}

/// The k largest numbers with their places, largest first, the lower place first among equals. x `[N]`, finite.
pub fn top_k(x: &[f32], k: usize) -> (Vec<u32>, Vec<f32>) {
    let mut ids: Vec<u32> = (0..x.len() as u32).collect();
    ids.sort_by(|&a, &b| x[b as usize].total_cmp(&x[a as usize])); // a stable sort: equals keep their order
    ids.truncate(k);
    let values = ids.iter().map(|&id| x[id as usize]).collect();
    (ids, values)
}

fn top_place(row: &[f32]) -> usize {
    let mut best = 0;
    for (i, &x) in row.iter().enumerate() {
        if x > row[best] {
            best = i;
        }
    }
    best
}

pub(super) fn softmax_f64(row: &mut [f64]) {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    row.iter_mut().for_each(|x| *x = (*x - max).exp()); // minus the largest, so that exp cannot overflow
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|x| *x /= sum);
}

pub(super) fn dot<F: Number>(a: &[F], b: &[F]) -> f64 {
    let mut sum = 0.0;
    for (a, b) in a.iter().zip(b) {
        sum += a.to_f64() * b.to_f64();
    }
    sum
}
