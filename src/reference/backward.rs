//! The backward ops: from the gradient of a loss by an op's result (`dy`, of the result's shape) to those by what it took.
//! Each stands to its namesake in [`ops`](super::ops), with the same shapes; sums are kept in f64.

use super::ops::{Number, dot, softmax_f64};
use crate::model::Rope;
use crate::train::IGNORED;

/// The table's gradient: each row is the sum over the tokens that gathered it. dy `[T, C]`, ids `[T]` -> `[V, C]`.
pub fn embed_backward<F: Number>(dy: &[F], ids: &[u32], v: usize, c: usize) -> Vec<F> {
    let mut sums = vec![0.0; v * c];
    for (row, &id) in dy.chunks_exact(c).zip(ids) {
        add_to(&mut sums[id as usize * c..][..c], 1.0, row);
    }
    numbers(&sums)
}

/// (dx `[T, C]`, dgain `[C]`). With r the root mean square of a row and n = x / r:
/// dx = (gain dy - n mean(gain dy n)) / r, dgain = the sum over tokens of dy n.
pub fn rms_norm_backward<F: Number>(x: &[F], gain: &[F], eps: f32, dy: &[F]) -> (Vec<F>, Vec<F>) {
    let c = gain.len();
    assert!(
        x.len() == dy.len() && x.len().is_multiple_of(c),
        "rms_norm_backward: x and dy hold the same whole rows of {c}"
    );
    let (mut dx, mut dgain) = (Vec::with_capacity(x.len()), vec![0.0; c]);
    for (row, dy) in x.chunks_exact(c).zip(dy.chunks_exact(c)) {
        let scale = 1.0 / (dot(row, row) / c as f64 + eps as f64).sqrt();
        let normed: Vec<f64> = row.iter().map(|x| x.to_f64() * scale).collect();
        let weighed: Vec<f64> = dy.iter().zip(gain).map(|(dy, gain)| dy.to_f64() * gain.to_f64()).collect();
        let mean = dot(&weighed, &normed) / c as f64;
        dx.extend(weighed.iter().zip(&normed).map(|(weighed, normed)| F::of((weighed - normed * mean) * scale)));
        for ((sum, normed), dy) in dgain.iter_mut().zip(&normed).zip(dy) {
            *sum += normed * dy.to_f64();
        }
    }
    (dx, numbers(&dgain))
}

/// dx = dy W. dy `[T, N]`, w `[N, K]` -> `[T, K]`.
pub fn matmul_dx<F: Number>(dy: &[F], w: &[F], t: usize, k: usize, n: usize) -> Vec<F> {
    assert_eq!((dy.len(), w.len()), (t * n, n * k), "matmul_dx: dy is [{t}, {n}], w is [{n}, {k}]");
    let mut dx = vec![0.0; t * k];
    for (dx, dy) in dx.chunks_exact_mut(k).zip(dy.chunks_exact(n)) {
        for (w, dy) in w.chunks_exact(k).zip(dy) {
            add_to(dx, dy.to_f64(), w);
        }
    }
    numbers(&dx)
}

/// dW = dyᵀ x. dy `[T, N]`, x `[T, K]` -> `[N, K]`.
pub fn matmul_dw<F: Number>(dy: &[F], x: &[F], t: usize, k: usize, n: usize) -> Vec<F> {
    assert_eq!((dy.len(), x.len()), (t * n, t * k), "matmul_dw: dy is [{t}, {n}], x is [{t}, {k}]");
    let mut dw = vec![0.0; n * k];
    for (x, dy) in x.chunks_exact(k).zip(dy.chunks_exact(n)) {
        for (dw, dy) in dw.chunks_exact_mut(k).zip(dy) {
            add_to(dw, dy.to_f64(), x);
        }
    }
    numbers(&dw)
}

/// The bias' gradient: the sum over tokens. dy `[T, N]` -> `[N]`.
pub fn add_bias_backward<F: Number>(dy: &[F], n: usize) -> Vec<F> {
    assert_eq!(dy.len() % n, 0, "add_bias_backward: dy holds whole rows of {n}");
    let mut sums = vec![0.0; n];
    dy.chunks_exact(n).for_each(|row| add_to(&mut sums, 1.0, row));
    numbers(&sums)
}

/// A rotation's gradient turns back by the same angle. dy `[T, H, D]`, positions `[T]` -> `[T, H, D]`.
pub fn rope_backward<F: Number>(dy: &[F], positions: &[u32], h: usize, d: usize, rope: &Rope) -> Vec<F> {
    assert_eq!(dy.len(), positions.len() * h * d, "rope_backward: dy is [{}, {h}, {d}]", positions.len());
    let magnitude = rope.magnitude as f64;
    let mut dx = dy.to_vec();
    for (token, &position) in dx.chunks_exact_mut(h * d).zip(positions) {
        for (i, &inv_freq) in rope.inv_freq.iter().enumerate() {
            let (sin, cos) = (position as f64 * inv_freq as f64).sin_cos();
            let (first, second) = rope.pair(i);
            for head in token.chunks_exact_mut(d) {
                let (a, b) = (head[first].to_f64(), head[second].to_f64());
                head[first] = F::of((a * cos + b * sin) * magnitude);
                head[second] = F::of((b * cos - a * sin) * magnitude);
            }
        }
    }
    dx
}

/// Gradients of one sequence from its first token on: (dq `[T, H, D]`, dk `[T, KV, D]`, dv `[T, KV, D]`).
/// With p the probabilities of a query and dp = dy vᵀ: dv += p dy, ds = p (dp - sum(p dp)) / sqrt(D), dq += ds k, dk += ds q.
pub fn attention_backward<F: Number>(
    q: &[F],
    k: &[F],
    v: &[F],
    h: usize,
    kv: usize,
    d: usize,
    dy: &[F],
) -> (Vec<F>, Vec<F>, Vec<F>) {
    let tokens = q.len() / (h * d);
    assert!(
        q.len() == dy.len() && [k.len(), v.len()] == [tokens * kv * d; 2] && h.is_multiple_of(kv),
        "attention_backward: q and dy are [T, {h}, {d}], k and v [T, {kv}, {d}]"
    );
    let heads_per_kv = h / kv;
    let scale = 1.0 / (d as f64).sqrt();
    let (mut dq, mut dk, mut dv) = (vec![0.0; q.len()], vec![0.0; k.len()], vec![0.0; v.len()]);
    for (i, (q, dy)) in q.chunks_exact(d).zip(dy.chunks_exact(d)).enumerate() {
        let (token, head) = (i / h, i % h);
        let at = |key: usize| (key * kv + head / heads_per_kv) * d;
        let mut p: Vec<f64> = (0..=token).map(|key| dot(q, &k[at(key)..][..d]) * scale).collect(); // [seen]
        softmax_f64(&mut p);
        let dp: Vec<f64> = (0..=token).map(|key| dot(dy, &v[at(key)..][..d])).collect(); // [seen]
        let mean = dot(&p, &dp);
        for key in 0..=token {
            let ds = p[key] * (dp[key] - mean) * scale;
            add_to(&mut dv[at(key)..][..d], p[key], dy);
            add_to(&mut dq[i * d..][..d], ds, &k[at(key)..][..d]);
            add_to(&mut dk[at(key)..][..d], ds, q);
        }
    }
    (numbers(&dq), numbers(&dk), numbers(&dv))
}

/// (dgate, dup), `[T, F]` each. silu'(g) = s (1 + g (1 - s)) with s = 1 / (1 + e^-g).
pub fn swiglu_backward<F: Number>(gate: &[F], up: &[F], dy: &[F]) -> (Vec<F>, Vec<F>) {
    assert!(gate.len() == up.len() && gate.len() == dy.len(), "swiglu_backward: gate, up and dy have one shape");
    let one = |((gate, up), dy): ((&F, &F), &F)| {
        let (g, up, dy) = (gate.to_f64(), up.to_f64(), dy.to_f64());
        let s = 1.0 / (1.0 + (-g).exp());
        (F::of(dy * up * s * (1.0 + g * (1.0 - s))), F::of(dy * g * s))
    };
    gate.iter().zip(up).zip(dy).map(one).unzip()
}

/// The power of two that brings a token's largest gradient to 2^13 and more, below 2^14, from 2^-100 to 2^100; 2^100 for zeros, 0
/// where one is not finite. dy `[T, N]` -> `[T]`.
pub fn row_scale(dy: &[f32], n: usize) -> Vec<f32> {
    let one = |row: &[f32]| {
        if row.iter().any(|v| !v.is_finite()) {
            return 0.0;
        }
        let most = row.iter().map(|v| v.abs() as f64).fold(0.0, f64::max);
        (13.0 - most.log2().floor()).clamp(-100.0, 100.0).exp2() as f32
    };
    dy.chunks_exact(n).map(one).collect()
}

/// Minus the log probability of each label; 0 where it is [`IGNORED`]. logits `[T, V]`, labels `[T]` -> `[T]`.
pub fn cross_entropy<F: Number>(logits: &[F], labels: &[u32], v: usize) -> Vec<F> {
    assert_eq!(logits.len(), labels.len() * v, "cross_entropy: logits is [{}, {v}]", labels.len());
    let one = |(row, &label): (&[F], &u32)| {
        if label == IGNORED {
            return F::of(0.0);
        }
        let max = row.iter().map(|x| x.to_f64()).fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = row.iter().map(|x| (x.to_f64() - max).exp()).sum();
        F::of(max + sum.ln() - row[label as usize].to_f64())
    };
    logits.chunks_exact(v).zip(labels).map(one).collect()
}

/// dlogits = (probabilities - 1 at the label) dy; zero where it is [`IGNORED`]. dy `[T]` -> `[T, V]`.
pub fn cross_entropy_backward<F: Number>(logits: &[F], labels: &[u32], v: usize, dy: &[F]) -> Vec<F> {
    assert!(
        logits.len() == labels.len() * v && labels.len() == dy.len(),
        "cross_entropy_backward: logits is [{0}, {v}], dy [{0}]",
        labels.len()
    );
    let mut dlogits = Vec::with_capacity(logits.len());
    for ((row, &label), dy) in logits.chunks_exact(v).zip(labels).zip(dy) {
        let mut p: Vec<f64> = row.iter().map(|x| x.to_f64()).collect();
        softmax_f64(&mut p);
        let dy = if label == IGNORED { 0.0 } else { dy.to_f64() };
        dlogits
            .extend(p.iter().enumerate().map(|(i, p)| F::of(dy * (p - if i == label as usize { 1.0 } else { 0.0 }))));
    }
    dlogits
}

/// sums += factor * row.
fn add_to<F: Number>(sums: &mut [f64], factor: f64, row: &[F]) {
    for (sum, v) in sums.iter_mut().zip(row) {
        *sum += factor * v.to_f64();
    }
}

fn numbers<F: Number>(sums: &[f64]) -> Vec<F> {
    sums.iter().map(|&sum| F::of(sum)).collect()
}
