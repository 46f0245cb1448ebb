//! The kernels that training alone has, but for the gradients (tests/backward_kernels.rs): RoPE of whole sequences and the
//! heads' norms, dropout, the optimizers, and views of weights. As tests/kernels.rs does it.

mod common;

use common::gpu::*;
use common::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::Gradient;
use peregrine::kernels::attention_backward::Heads;
use peregrine::kernels::dropout::dropout;
use peregrine::kernels::embed::embed;
use peregrine::kernels::heads_norm_backward::heads_norm_backward;
use peregrine::kernels::linear::{Finish, Input, linear};
use peregrine::kernels::matmul_dx::matmul_dx;
use peregrine::kernels::optimizer::{Rates, Region, adamw, sgd, sum_of_squares, sums_of};
use peregrine::kernels::rms_norm::Rows;
use peregrine::kernels::rms_norm_backward::heads_dgain;
use peregrine::kernels::rope::rope;
use peregrine::kernels::rope_kv::{Angles, HeadNorms};
use peregrine::model::{Pairing, Rope};
use peregrine::reference::{self, backward, ops, optimizer::Moments};
use peregrine::tensor::{Element, Tensor};
use peregrine::train::AdamW;
use peregrine::weight::{Data, Source, Vector, Weight};
use peregrine::{Gpu, block_on, wgpu};

const EPS: f32 = 1e-5;

/// The queries, keys or values of a token's heads: [T, heads, D] from head `first` on.
fn heads_of(x: &[f32], all: u32, d: u32, first: u32, heads: u32) -> Vec<f32> {
    let token = |row: &[f32]| row[(first * d) as usize..][..(heads * d) as usize].to_vec();
    x.chunks((all * d) as usize).flat_map(token).collect()
}

/// Such parts [T, heads, D] side by side again.
fn side_by_side(parts: &[(&[f32], u32)], t: u32, d: u32) -> Vec<f32> {
    let row = |i: u32, (x, heads): (&[f32], u32)| x[(i * heads * d) as usize..][..(heads * d) as usize].to_vec();
    (0..t).flat_map(|i| parts.iter().flat_map(move |&part| row(i, part))).collect()
}

/// What the norm multiplies each row of d with, before the gain.
fn inverses_of(x: &[f32], d: u32) -> Vec<f32> {
    let mean_square = |row: &[f32]| row.iter().map(|&v| v as f64 * v as f64).sum::<f64>() / d as f64;
    x.chunks(d as usize).map(|row| (1.0 / (mean_square(row) + EPS as f64).sqrt()) as f32).collect()
}

/// Norms of queries, keys, both and neither.
const NORMED: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

#[test]
fn rope_of_sequences() {
    let mut table = Table::new("rope");
    // (tokens of each sequence, H, KV, D, pairs): whole heads and a part of each, several workgroups a token
    let cases: [(&[u32], u32, u32, u32, u32); 6] = [
        (&[1], 1, 1, 4, 2),
        (&[3, 1, 5], 5, 1, 36, 18),
        (&[33], 9, 3, 64, 32),
        (&[7, 26], 4, 4, 80, 16),
        (&[2, 2], 2, 1, 256, 128),
        (&[1757], 3, 1, 8, 3),
    ];
    for (profile, gpu) in profiles() {
        for (lengths, h, kv, d, pairs) in cases {
            for pairing in [Pairing::Neighbours, Pairing::Halves] {
                for (q_normed, k_normed) in NORMED {
                    let (t, all) = (lengths.iter().sum::<u32>(), h + 2 * kv);
                    let mut random = Random::new((t * 7919 + h * 31 + d) as u64);
                    let qkv_floats = random.normals((t * all * d) as usize, 1.5);
                    let [q_gain, k_gain] = [(); 2].map(|()| random.normals(d as usize, 1.0));
                    let positions: Vec<u32> = lengths.iter().flat_map(|&n| (0..n).map(move |i| i + n % 3)).collect();
                    let inv_freq = (0..pairs).map(|i| 0.7f32.powi(i as i32)).collect();
                    let turning = Rope { dims: 2 * pairs as usize, inv_freq, magnitude: 1.25, pairing };

                    let part = |first, heads| heads_of(&qkv_floats, all, d, first, heads);
                    let (q, k, v) = (part(0, h), part(h, kv), part(h + kv, kv));
                    let turn = |x: &[f32], heads: u32, gain: &[f32], normed: bool| {
                        let x = if normed { ops::rms_norm(x, gain, EPS) } else { x.to_vec() };
                        ops::rope(&x, &positions, heads as usize, d as usize, &turning)
                    };
                    let inverse =
                        |x: &[f32], normed| if normed { inverses_of(x, d) } else { vec![1.0; x.len() / d as usize] };
                    let (q_turned, k_turned) = (turn(&q, h, &q_gain, q_normed), turn(&k, kv, &k_gain, k_normed));
                    let want = side_by_side(&[(&q_turned, h), (&k_turned, kv), (&v, kv)], t, d);
                    let want_inverses =
                        side_by_side(&[(&inverse(&q, q_normed), h), (&inverse(&k, k_normed), kv)], t, 1);

                    let (qkv, turned, inverses) =
                        (filled(t, all * d, &qkv_floats), poisoned(t, all * d), poisoned(t, h + kv));
                    let angles = Angles::upload(&gpu, &turning, 1760).unwrap();
                    let [q_gain, k_gain] = [q_gain, k_gain].map(|gain| Vector::upload(&gpu, "gain", &gain).unwrap());
                    let norms = HeadNorms { q: q_normed.then_some(&q_gain), k: k_normed.then_some(&k_gain), eps: EPS };
                    let shape = Heads { heads: h, kv_heads: kv, head_size: d };
                    let positions = buffer(&positions);
                    let outcome = run(&gpu, frame(0, t), |plan| {
                        rope(plan, "turned", shape, &qkv, &angles, norms, &positions, &turned, &inverses)
                    })
                    .and_then(|()| {
                        let got = read_guarded(&turned, t);
                        close("turned", &got, &want, 1e-5, 1e-5)?;
                        close("inverses", &read_guarded(&inverses, t), &want_inverses, 0.0, 2e-6)?;
                        let row = (all * d) as usize;
                        same_bits("values", &got, &want, |i| i % row >= ((h + kv) * d) as usize)
                    });
                    let norms = format!("norms of queries {q_normed}, keys {k_normed}");
                    let row =
                        format!("{lengths:?}, [{h} + 2 x {kv}, {d}], {pairs} pairs, {pairing:?}, {norms}, {profile}");
                    table.row(&row, outcome);
                }
            }
        }
    }
    table.finish();
}

/// (T, H, KV, D): the smallest, odd heads, a prime, several of a workgroup's rounds, the largest.
const HEADS: [(u32, u32, u32, u32); 6] =
    [(1, 1, 1, 4), (3, 5, 1, 31), (33, 9, 3, 64), (2, 4, 4, 80), (5, 2, 1, 256), (1757, 3, 1, 1)];

#[test]
fn heads_norm_backward_sizes() {
    let mut table = Table::new("heads_norm_backward");
    for (profile, gpu) in profiles() {
        for (t, h, kv, d) in HEADS {
            for (q_normed, k_normed) in NORMED {
                let all = h + 2 * kv;
                let mut random = Random::new((t * 7919 + h * 31 + d) as u64);
                let [x, dy] = [1.5, 1.0].map(|scale| random.normals((t * all * d) as usize, scale));
                let [q_gain, k_gain] = [(); 2].map(|()| random.normals(d as usize, 1.0));
                let part = |x: &[f32], first, heads| heads_of(x, all, d, first, heads);
                let back = |first, heads, gain: &[f32], normed: bool| {
                    let (x, dy) = (part(&x, first, heads), part(&dy, first, heads));
                    // nothing is asked of heads that have no norm
                    let nothing = vec![POISON; (t * heads) as usize];
                    match normed {
                        true => (backward::rms_norm_backward(&x, gain, EPS, &dy).0, inverses_of(&x, d)),
                        false => (dy, nothing),
                    }
                };
                let (dq, q_inverses) = back(0, h, &q_gain, q_normed);
                let (dk, k_inverses) = back(h, kv, &k_gain, k_normed);
                let want = side_by_side(&[(&dq, h), (&dk, kv), (&part(&dy, h + kv, kv), kv)], t, d);

                let inverses = filled(t, h + kv, &side_by_side(&[(&q_inverses, h), (&k_inverses, kv)], t, 1));
                let (x, dqkv) = (filled(t, all * d, &x), filled(t, all * d, &dy));
                let [q_gain, k_gain] = [q_gain, k_gain].map(|gain| Vector::upload(&gpu, "gain", &gain).unwrap());
                let norms = HeadNorms { q: q_normed.then_some(&q_gain), k: k_normed.then_some(&k_gain), eps: EPS };
                let shape = Heads { heads: h, kv_heads: kv, head_size: d };
                let outcome = run(&gpu, frame(0, t), |plan| {
                    heads_norm_backward(plan, "dqkv", shape, &x, &inverses, norms, &dqkv)
                })
                .and_then(|()| {
                    let got = read_guarded(&dqkv, t);
                    close("dqkv", &got, &want, 2e-5, 2e-5)?;
                    same_bits("heads without a norm", &got, &dy, |i| {
                        let head = i as u32 / d % all;
                        if head < h { !q_normed } else { head >= h + kv || !k_normed }
                    })
                });
                let norms = format!("norms of queries {q_normed}, keys {k_normed}");
                table.row(&format!("T {t}, [{h} + 2 x {kv}, {d}], {norms}, {profile}"), outcome);
            }
        }
    }
    table.finish();
}

#[test]
fn heads_dgain_sizes() {
    let mut table = Table::new("heads_dgain");
    for (profile, gpu) in profiles() {
        for (t, h, kv, d) in HEADS {
            let all = h + 2 * kv;
            let mut random = Random::new((t * 7919 + h * 31 + d) as u64);
            let [x, dy] = [1.5, 1.0].map(|scale| random.normals((t * all * d) as usize, scale));
            let gain = random.normals(d as usize, 1.0); // the gain's own gradient does not depend on it
            for (name, first, heads) in [("queries", 0, h), ("keys", h, kv)] {
                let [x_part, dy_part] = [&x, &dy].map(|x| heads_of(x, all, d, first, heads));
                let (_, want) = backward::rms_norm_backward(&x_part, &gain, EPS, &dy_part);
                // those of the other heads are not asked for
                let others = vec![POISON; (t * (h + kv - heads)) as usize];
                let own = inverses_of(&x_part, d);
                let parts = [(&own[..], heads), (&others[..], h + kv - heads)];
                let sorted = if first == 0 { parts } else { [parts[1], parts[0]] };
                let inverses = filled(t, h + kv, &side_by_side(&sorted, t, 1));
                let (x, dy) = (filled(t, all * d, &x), filled(t, all * d, &dy));
                let abs = 2e-5 + 2e-6 * ((t * heads) as f32).sqrt();
                let row = format!("T {t}, {name} of [{h} + 2 x {kv}, {d}], {profile}");
                both_ways(&mut table, &row, (&gpu, t, 1, d), (&want, abs), |plan, dgain, to| {
                    heads_dgain(plan, "dgain", &x, &dy, &inverses, (first, heads), dgain, to)
                });
            }
        }
    }
    table.finish();
}

/// (rows, cols, where the region begins, its rows, its cols): whole tensors, some rows, some columns of one row.
fn regions() -> Vec<(u32, u32, Region, String)> {
    let mut all = Vec::new();
    for (rows, cols, first, count) in [
        (1, 1, 0, 1),
        (2, 31, 0, 2),
        (5, 1757, 0, 5),
        (65, 97, 0, 65),
        (5, 1757, 2, 1),
        (33, 64, 1, 31),
        (7, 36, 6, 1),
        (70, 260, 3, 67),
    ] {
        let tensor = Tensor::new(gpu(), "shape", 1, cols).unwrap();
        let region = Region::rows(&tensor, first, count);
        all.push((rows, cols, region, format!("rows {first} to {} of [{rows}, {cols}]", first + count)));
    }
    for (cols, first, count) in [(97, 0, 32), (97, 32, 36), (97, 96, 1), (1757, 576, 192), (4, 0, 4)] {
        let region = Region { first: first / 4, rows: 1, vectors: u32::div_ceil(count, 4) };
        all.push((1, cols, region, format!("columns {first} to {} of [1, {cols}]", first + count)));
    }
    all
}

/// Whether a place of a tensor's buffer lies in a region.
fn inside(region: Region, tensor: &Tensor, i: usize) -> bool {
    let stride = tensor.stride() as usize;
    let Some(from) = i.checked_sub(region.first as usize * 4) else { return false };
    from / stride < region.rows as usize && from % stride < region.vectors as usize * 4
}

/// Some steps of an optimizer on a region of tensors: `build` adds one to a plan, `want` takes one in f64 on all numbers of
/// the buffers. Afterwards the region holds what was wanted, all else its own bits.
fn steps(
    gpu: &Gpu,
    (rows, cols, region): (u32, u32, Region),
    moments: usize,
    rates_of: impl Fn(i32) -> Rates,
    build: impl Fn(&mut peregrine::plan::PlanBuilder, &wgpu::Buffer, &Tensor, &Tensor, &[Tensor]) -> peregrine::Result<()>,
    mut want: impl FnMut(&mut [f64], &[f64], i32),
) -> Result<(), String> {
    let mut random = Random::new((rows * 7919 + cols) as u64);
    let count = (rows * cols) as usize;
    let w = filled(rows, cols, &random.normals(count, 1.0));
    let gradient = filled(rows, cols, &random.normals(count, 3.0));
    let zeros = vec![0.0; count];
    let moments: Vec<Tensor> = (0..moments).map(|_| filled(rows, cols, &zeros)).collect();
    let before: Vec<Vec<f32>> = moments.iter().chain([&w]).map(raw).collect();
    let rates = buffer(&[rates_of(1)]);
    let mut wanted: Vec<f64> = raw(&w).iter().map(|&v| v as f64).collect();
    for step in 1..=4 {
        let floats = random.normals(count, 3.0 / step as f32);
        gradient.write(gpu, &floats).map_err(|e| e.to_string())?;
        gpu.queue().write_buffer(&rates, 0, bytemuck::bytes_of(&rates_of(step)));
        run(gpu, frame(0, 1), |plan| build(plan, &rates, &gradient, &w, &moments))?;
        want(&mut wanted, &raw(&gradient).iter().map(|&g| g as f64).collect::<Vec<_>>(), step);
    }
    let of_region = |x: &[f32]| -> Vec<f32> { (0..x.len()).filter(|&i| inside(region, &w, i)).map(|i| x[i]).collect() };
    let wanted: Vec<f32> = wanted.iter().map(|&v| v as f32).collect();
    close("w", &of_region(&raw(&w)), &of_region(&wanted), 2e-6, 2e-6)?;
    for (tensor, before) in moments.iter().chain([&w]).zip(before) {
        same_bits("outside the region", &raw(tensor), &before, |i| !inside(region, tensor, i))?;
    }
    Ok(())
}

#[test]
fn adamw_regions() {
    let mut table = Table::new("adamw");
    let settings = AdamW { beta1: 0.8, beta2: 0.98, eps: 1e-6, decay: 0.3 };
    let (rate, clip) = (0.01, 0.7);
    let lacks = |beta: f64, step: i32| (1.0 - beta.powi(step)) as f32;
    let rates = |step| Rates {
        rate: rate as f32,
        clip: clip as f32,
        decay: settings.decay as f32,
        beta1: settings.beta1 as f32,
        beta2: settings.beta2 as f32,
        eps: settings.eps as f32,
        lacks1: lacks(settings.beta1, step),
        lacks2: lacks(settings.beta2, step),
    };
    for (profile, gpu) in profiles() {
        for (rows, cols, region, name) in regions() {
            for decays in [true, false] {
                let settings = AdamW { decay: if decays { settings.decay } else { 0.0 }, ..settings };
                let mut moments = None;
                let outcome = steps(
                    &gpu,
                    (rows, cols, region),
                    2,
                    rates,
                    |plan, rates, gradient, w, moments| {
                        let [means, squares] = [&moments[0], &moments[1]];
                        adamw(plan, "w", rates, region, decays, gradient, w, means, squares)
                    },
                    |w, gradient, step| {
                        let moments = moments.get_or_insert_with(|| Moments::new(w.len()));
                        let clipped: Vec<f64> = gradient.iter().map(|g| g * clip).collect();
                        reference::optimizer::adamw(w, &clipped, moments, &settings, rate, step as u64)
                    },
                );
                table.row(&format!("{name}, decay {decays}, {profile}"), outcome);
            }
        }
    }
    table.finish();
}

#[test]
fn sgd_regions() {
    let mut table = Table::new("sgd");
    let (rate, clip, momentum, decay) = (0.01, 0.7, 0.9, 0.3);
    let rates = |_| Rates {
        rate: rate as f32,
        clip: clip as f32,
        decay: decay as f32,
        beta1: momentum as f32,
        beta2: POISON, // the others are not asked for
        eps: POISON,
        lacks1: POISON,
        lacks2: POISON,
    };
    for (profile, gpu) in profiles() {
        for (rows, cols, region, name) in regions() {
            for decays in [true, false] {
                let decay = if decays { decay } else { 0.0 };
                let mut momenta = Vec::new();
                let outcome = steps(
                    &gpu,
                    (rows, cols, region),
                    1,
                    rates,
                    |plan, rates, gradient, w, moments| sgd(plan, "w", rates, region, decays, gradient, w, &moments[0]),
                    |w, gradient, _| {
                        momenta.resize(w.len(), 0.0);
                        let clipped: Vec<f64> = gradient.iter().map(|g| g * clip).collect();
                        reference::optimizer::sgd(w, &clipped, &mut momenta, momentum, decay, rate)
                    },
                );
                table.row(&format!("{name}, decay {decays}, {profile}"), outcome);
            }
        }
    }
    table.finish();
}

#[test]
fn adamw_beyond_65535_workgroups() {
    // 64 vec4 a workgroup; numbers repeat, so that the reference need not take them all
    let (rows, cols, period) = (131_074, 128, 1009);
    let mut random = Random::new(3);
    let [w_floats, gradient_floats] = [(); 2].map(|()| random.normals(period, 1.0));
    let tensor = |floats: &[f32]| {
        let tensor = Tensor::new(gpu(), "large", rows, cols).unwrap();
        let all: Vec<f32> = floats.iter().cycle().take((rows * cols) as usize).copied().collect();
        tensor.write(gpu(), &all).unwrap();
        tensor
    };
    let [w, gradient, means, squares] = [&w_floats, &gradient_floats, &vec![0.0], &vec![0.0]].map(|x| tensor(x));
    let settings = AdamW { decay: 0.1, ..AdamW::default() };
    let rates =
        Rates { rate: 0.01, clip: 1.0, decay: 0.1, beta1: 0.9, beta2: 0.999, eps: 1e-8, lacks1: 0.1, lacks2: 0.001 };
    let (rates, region) = (buffer(&[rates]), Region::rows(&w, 0, rows));
    run(gpu(), frame(0, 1), |plan| adamw(plan, "w", &rates, region, true, &gradient, &w, &means, &squares)).unwrap();
    let mut want = w_floats;
    reference::optimizer::adamw(&mut want, &gradient_floats, &mut Moments::new(period), &settings, 0.01, 1);
    let want: Vec<f32> = want.iter().cycle().take((rows * cols) as usize).copied().collect();
    common::assert_close("w", &raw(&w), &want, 1e-6, 1e-6);
}

#[test]
fn sums_of_squares() {
    let mut table = Table::new("sum_of_squares");
    let mut cases = regions();
    for (rows, cols) in [(131, 33), (75, 4001)] {
        // some workgroups, and as many as there are
        let region = Region::rows(&Tensor::new(gpu(), "shape", 1, cols).unwrap(), 0, rows);
        cases.push((rows, cols, region, format!("[{rows}, {cols}]")));
    }
    let most = cases.iter().map(|case| sums_of(case.2)).max();
    assert_eq!(most, Some(64), "a case with the most workgroups");
    for (profile, gpu) in profiles() {
        for (rows, cols, region, name) in &cases {
            let floats = Random::new((rows * 7919 + cols) as u64).normals((rows * cols) as usize, 2.0);
            let x = filled(*rows, *cols, &floats);
            let lies = raw(&x);
            let counted = (0..lies.len()).filter(|&i| inside(*region, &x, i)).map(|i| lies[i] as f64);
            let want = counted.map(|v| v * v).sum::<f64>();
            let (slot, count) = (3, sums_of(*region) as usize);
            let sums = buffer(&vec![POISON; slot + count + 5]);
            let outcome = run(&gpu, frame(0, 1), |plan| sum_of_squares(plan, "norm", &x, *region, &sums, slot as u32))
                .and_then(|()| {
                    let bytes =
                        block_on(gpu.read(&sums, 0, (slot + count + 5) as u64 * 4)).map_err(|e| e.to_string())?;
                    let got: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
                    let written = (0..got.len()).filter(|&i| !got[i].is_nan()).collect::<Vec<_>>();
                    if written != (slot..slot + count).collect::<Vec<_>>() {
                        return Err(format!("{count} sums from {slot} on were asked for, {written:?} are there"));
                    }
                    let total = got[slot..slot + count].iter().map(|&v| v as f64).sum::<f64>();
                    close("the sum", &[total as f32], &[want as f32], 0.0, 2e-6).map(drop)
                });
            table.row(&format!("{name}, {profile}"), outcome);
        }
    }
    table.finish();
}

/// x with some numbers dropped.
fn dropped(gpu: &Gpu, x: &Tensor, t: u32, probability: f32, seed: u32, salt: u32) -> Result<Vec<f32>, String> {
    let (seed, y) = (buffer(&[seed]), poisoned(t, x.cols));
    run(gpu, frame(0, t), |plan| dropout(plan, "y", x, probability, &seed, salt, &y, Gradient::Store))?;
    Ok(read_guarded(&y, t))
}

#[test]
fn dropout_sizes() {
    let mut table = Table::new("dropout");
    for (profile, gpu) in profiles() {
        for (t, n) in [(1, 1), (1, 64), (2, 31), (3, 65), (33, 97), (5, 1757), (70, 576)] {
            for probability in [0.0, 0.1, 0.5, 0.9] {
                let mut random = Random::new((t * 7919 + n) as u64);
                let [x_floats, before] = [(); 2].map(|()| random.normals((t * n) as usize, 1.0));
                let (x, count) = (filled(t, n, &x_floats), (t * n) as usize);
                let outcome = dropped(&gpu, &x, t, probability, 7, 3).and_then(|y| {
                    let scale = 1.0 / (1.0 - probability as f64);
                    let kept: Vec<f32> = x_floats.iter().map(|&v| (v as f64 * scale) as f32).collect();
                    let want: Vec<f32> = y.iter().zip(&kept).map(|(y, v)| if *y == 0.0 { 0.0 } else { *v }).collect();
                    close("y", &y, &want, 0.0, 3e-7)?;
                    if probability == 0.0 {
                        same_bits("of nothing dropped", &y, &x_floats, |_| true)?;
                    }
                    let again = dropped(&gpu, &x, t, probability, 7, 3)?;
                    same_bits("by the same seed", &again, &y, |_| true)?;
                    for (seed, salt) in [(8, 3), (7, 4)] {
                        let other = dropped(&gpu, &x, t, probability, seed, salt)?;
                        let differ = (0..count).filter(|&i| (other[i] == 0.0) != (y[i] == 0.0)).count();
                        if count > 60 && (differ == 0) != (probability == 0.0) {
                            return Err(format!("seed {seed}, salt {salt}: {differ} of {count} differ"));
                        }
                    }
                    let (seed, added) = (buffer(&[7u32]), filled(t, n, &before));
                    let to = Gradient::Add;
                    run(&gpu, frame(0, t), |plan| dropout(plan, "y", &x, probability, &seed, 3, &added, to))?;
                    close("added", &read_guarded(&added, t), &ops::add(&before, &y), 1e-7, 3e-7).map(drop)
                });
                table.row(&format!("[{t}, {n}], probability {probability}, {profile}"), outcome);
            }
        }
    }
    table.finish();
}

/// Shares that lie further than five standard deviations from what chance gives are none of chance's.
#[test]
fn dropout_drops_by_chance() {
    let mut table = Table::new("chance of dropout");
    let (t, n) = (70, 576);
    let x = filled(t, n, &vec![1.0; (t * n) as usize]);
    for probability in [0.05, 0.3, 0.5, 0.9] {
        let mask = |seed, salt| -> Vec<bool> {
            dropped(gpu(), &x, t, probability, seed, salt).unwrap().iter().map(|y| *y == 0.0).collect()
        };
        let p = probability as f64;
        let mut share = |what: &str, places: Vec<bool>, expected: f64| {
            let count = places.len() as f64;
            let got = places.iter().filter(|&&is| is).count() as f64 / count;
            let five = 5.0 * (expected * (1.0 - expected) / count).sqrt();
            let outcome = match (got - expected).abs() <= five {
                true => Ok(()),
                false => Err(format!("{got} of {count}, expected {expected} within {five}")),
            };
            table.row(&format!("probability {probability}, {what}"), outcome);
        };
        for seed in [0, 1, 12_345, u32::MAX] {
            let y = mask(seed, 1);
            share(&format!("seed {seed}"), y.clone(), p);
            for lane in 0..4 {
                share(
                    &format!("seed {seed}, channel {lane} of 4"),
                    y.iter().skip(lane).step_by(4).copied().collect(),
                    p,
                );
            }
            // two that have nothing to do with each other differ at this share
            let differ = |a: &[bool], b: &[bool]| a.iter().zip(b).map(|(a, b)| a != b).collect::<Vec<bool>>();
            let unlike = 2.0 * p * (1.0 - p);
            share(&format!("seed {seed} and the next"), differ(&y, &mask(seed.wrapping_add(1), 1)), unlike);
            share(&format!("seed {seed}, salts 1 and 2"), differ(&y, &mask(seed, 2)), unlike);
            let row = n as usize;
            for (what, step) in [("a token and the next", row), ("a channel and the next", 1), ("the fourth", 4)] {
                // pairs that do not overlap
                let pairs = y.chunks_exact(2 * step).flat_map(|two| differ(&two[..step], &two[step..]));
                share(&format!("seed {seed}, {what}"), pairs.collect(), unlike);
            }
        }
    }
    table.finish();
}

#[test]
fn views_of_weights() {
    let mut table = Table::new("views of weights");
    let (t, n) = (3, 150);
    for (profile, gpu) in profiles() {
        for format in Format::ALL {
            let k = if format.block_weights() == 1 { 97 } else { 256 };
            // in one part, and in parts of 64 rows
            let row_bytes =
                (k as u64).next_multiple_of(32) / format.block_weights() as u64 * format.block_bytes() as u64;
            for device in [gpu.clone(), gpu.with_max_binding(70 * row_bytes)] {
                let mut random = Random::new(k as u64);
                let (w, floats) = random_weight(&device, format, &mut random, n, k);
                let x_floats = random.normals((t * k) as usize, 1.0);
                let x = filled(t, k, &x_floats);
                for (first, count) in [(0, n), (1, 1), (31, 2), (33, 64), (70, 80), (149, 1), (5, 131)] {
                    let row = |what: &str| {
                        let parts = w.parts.len();
                        format!("{what} {} rows {first}, {count} more, of {parts} parts, {profile}", format.name())
                    };
                    // a view of a view, too
                    let view = w.rows(first / 2, n - first / 2).rows(first - first / 2, count);
                    let part = &floats[(first * k) as usize..][..(count * k) as usize];
                    let [ts, ks, ns] = [t, k, count].map(|v| v as usize);
                    for tokens in [1, t] {
                        let want = ops::matmul(&x_floats[..(tokens * k) as usize], part, tokens as usize, ks, ns);
                        let y = poisoned(tokens, count);
                        let outcome = run(&device, frame(0, tokens), |plan| {
                            linear(plan, "y", &x, Input::Plain, &view, None, Rows::All, Finish::Store(&y))
                        })
                        .and_then(|()| close("y", &read_guarded(&y, tokens), &want, 3e-4, 1e-5));
                        table.row(&row(&format!("linear of {tokens}")), outcome.map(drop));
                    }
                    let dy_floats = random.normals((t * count) as usize, 1.0);
                    let (dy, dx) = (filled(t, count, &dy_floats), poisoned(t, k));
                    let want = backward::matmul_dx(&dy_floats, part, ts, ks, ns);
                    let outcome =
                        run(&device, frame(0, t), |plan| matmul_dx(plan, "dx", &dy, &view, &dx, Gradient::Store))
                            .and_then(|()| close("dx", &read_guarded(&dx, t), &want, 2e-4, 1e-5));
                    table.row(&row("matmul_dx"), outcome.map(drop));

                    let ids = random.ids(t as usize, count);
                    let (id_buffer, y) = (buffer(&ids), poisoned(t, k));
                    let outcome = run(&device, frame(0, t), |plan| embed(plan, "y", &view, &id_buffer, &y));
                    let outcome = outcome
                        .and_then(|()| close("y", &read_guarded(&y, t), &ops::embed(part, &ids, ks), 1e-5, 1e-5));
                    table.row(&row("embed"), outcome.map(drop));
                }
            }
        }
    }
    table.finish();
}

/// A master lies as a tensor does, so that it can be stepped as one, and is multiplied with as any weight is.
#[test]
fn masters() {
    let mut table = Table::new("masters");
    for (profile, gpu) in profiles() {
        for (t, rows, k) in [(1u32, [1u32, 2], 1u32), (3, [64, 86], 97), (2, [70, 1], 1757)] {
            let n = rows[0] + rows[1];
            let mut random = Random::new((n * 31 + k) as u64);
            let (w_floats, x_floats) = (random.normals((n * k) as usize, 1.0), random.normals((t * k) as usize, 1.0));
            let dy_floats = random.normals((t * n) as usize, 1.0);
            let split = gpu.with_max_binding(70 * k.next_multiple_of(32) as u64 * 4);
            let data: &[u8] = bytemuck::cast_slice(&w_floats);
            let (a, b) = data.split_at((rows[0] * k) as usize * 4);
            let sources = [(rows[0], a), (rows[1], b)].map(|(rows, data)| Source {
                format: Format::F32,
                rows,
                data: Data::Here(data),
            });
            for (name, w) in [
                ("one tensor", Weight::master(&gpu, "w", k, &w_floats).unwrap()),
                ("two tensors", block_on(Weight::masters(&gpu, "w", k, &sources)).unwrap()),
                ("in parts", block_on(Weight::masters(&split, "w", k, &sources)).unwrap()),
            ] {
                let outcome = || -> Result<(), String> {
                    for part in &w.parts {
                        let buffer = part.quants.clone();
                        let tensor = Tensor { buffer, rows: part.rows, cols: k, element: Element::F32 };
                        let got = block_on(tensor.read(&gpu, part.rows)).map_err(|e| e.to_string())?;
                        let want = &w_floats[(part.first_row * k) as usize..][..(part.rows * k) as usize];
                        same_bits("as a tensor", &got, want, |_| true)?;
                    }
                    let (x, y) = (filled(t, k, &x_floats), poisoned(t, n));
                    let (dy, dx) = (filled(t, n, &dy_floats), poisoned(t, k));
                    run(&gpu, frame(0, t), |plan| {
                        linear(plan, "y", &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y))?;
                        matmul_dx(plan, "dx", &dy, &w, &dx, Gradient::Store)
                    })?;
                    let [ts, ks, ns] = [t, k, n].map(|v| v as usize);
                    let abs = 1e-5 * (k.max(n) as f32).sqrt();
                    close("y", &read_guarded(&y, t), &ops::matmul(&x_floats, &w_floats, ts, ks, ns), abs, 1e-5)?;
                    let want = backward::matmul_dx(&dy_floats, &w_floats, ts, ks, ns);
                    close("dx", &read_guarded(&dx, t), &want, abs, 1e-5).map(drop)
                };
                table.row(&format!("{name} [{n}, {k}], {} parts, {profile}", w.parts.len()), outcome());
            }
        }
    }
    table.finish();
}
