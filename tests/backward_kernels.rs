//! Every backward kernel against its CPU reference, as tests/kernels.rs does it for the forward ones.

mod common;

use common::gpu::*;
use common::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::add_bias_backward::add_bias_backward;
use peregrine::kernels::attention_backward::{
    AttentionBackward, Heads, attention_dkv, attention_dq, attention_sequence,
};
use peregrine::kernels::cross_entropy::{cross_entropy, cross_entropy_backward};
use peregrine::kernels::embed_backward::embed_backward;
use peregrine::kernels::matmul_dw::matmul_dw;
use peregrine::kernels::matmul_dx::matmul_dx;
use peregrine::kernels::rms_norm_backward::{rms_norm_backward, rms_norm_dgain};
use peregrine::kernels::rope_backward::rope_backward;
use peregrine::kernels::rope_kv::Angles;
use peregrine::kernels::row_scale::row_scale;
use peregrine::kernels::swiglu::Lie;
use peregrine::kernels::swiglu_backward::swiglu_backward;
use peregrine::kernels::{Columns, Dy, Gradient};
use peregrine::model::{Pairing, Rope};
use peregrine::reference::{backward, ops};
use peregrine::tensor::Tensor;
use peregrine::train::IGNORED;
use peregrine::weight::{Data, Source, Vector, Weight};
use peregrine::{Matrix, Profile, block_on};

#[test]
fn matmul_dx_in_every_format() {
    let mut table = Table::new("matmul_dx");
    // (T, K, N): one of each, odd ones, tiles and one more, several workgroups either way
    let shapes = [(1, 256, 1), (3, 256, 65), (33, 512, 31), (31, 256, 97), (70, 768, 32)];
    let odd = [(1, 1, 1), (33, 97, 5), (3, 31, 1757), (32, 1757, 3), (64, 172, 64)]; // plain formats only
    for (profile, gpu) in profiles() {
        for format in Format::ALL {
            let shapes = shapes.iter().chain(if format.block_weights() == 1 { &odd[..] } else { &[] });
            for &(t, k, n) in shapes {
                let mut random = Random::new((t * 7919 + n * 31 + k) as u64);
                let (w, w_floats) = random_weight(&gpu, format, &mut random, n, k);
                let (dy_floats, before) =
                    (random.normals((t * n) as usize, 1.0), random.normals((t * k) as usize, 1.0));
                let (dy, dx) = (filled(t, n, &dy_floats), poisoned(t, k));
                let want = backward::matmul_dx(&dy_floats, &w_floats, t as usize, k as usize, n as usize);
                let abs = 1e-5 * (n as f32).sqrt();
                let row = format!("{} [{t}, {n}] x [{n}, {k}], {profile}", format.name());
                let outcome = run(&gpu, frame(0, t), |plan| matmul_dx(plan, "dx", &dy, &w, &dx, Gradient::Store))
                    .and_then(|()| close("dx", &read_guarded(&dx, t), &want, abs, 1e-5));
                table.row(&row, outcome.map(drop));

                let dx = filled(t, k, &before);
                let outcome = run(&gpu, frame(0, t), |plan| matmul_dx(plan, "dx", &dy, &w, &dx, Gradient::Add))
                    .and_then(|()| close("dx", &read_guarded(&dx, t), &ops::add(&before, &want), abs, 1e-5));
                table.row(&format!("{row}, added"), outcome.map(drop));
            }
        }
    }
    table.finish();
}

#[test]
fn matmul_dx_over_parts() {
    let mut table = Table::new("matmul_dx over parts");
    let (t, k, rows) = (5, 256, [70, 33, 5]);
    let mut random = Random::new(9);
    let formats = [Format::Q4_K, Format::Q8_0, Format::F16];
    let (bytes, floats): (Vec<_>, Vec<_>) =
        formats.iter().zip(rows).map(|(&format, n)| random_bytes(format, &mut random, n, k)).unzip();
    let sources: Vec<Source> = formats
        .iter()
        .zip(&bytes)
        .zip(rows)
        .map(|((&format, data), rows)| Source { format, rows, data: Data::Here(data) })
        .collect();
    let dy_floats = random.normals(t as usize * 108, 1.0);
    let want = backward::matmul_dx(&dy_floats, &floats.concat(), t as usize, k as usize, 108);
    for (profile, gpu) in profiles() {
        let w = block_on(Weight::stacked(&gpu, "w", k, &sources)).unwrap();
        assert_eq!(w.parts.len(), 3);
        let (dy, dx) = (filled(t, 108, &dy_floats), poisoned(t, k));
        let outcome = run(&gpu, frame(0, t), |plan| matmul_dx(plan, "dx", &dy, &w, &dx, Gradient::Store))
            .and_then(|()| close("dx", &read_guarded(&dx, t), &want, 1e-4, 1e-5));
        table.row(&profile, outcome.map(drop));
    }
    table.finish();
}

/// (T, cols): one of each, odd ones, primes, several workgroups either way.
const SIZES: [(u32, u32); 7] = [(1, 1), (1, 64), (2, 31), (3, 65), (33, 97), (5, 1757), (70, 576)];

#[test]
fn matmul_dw_sizes() {
    let mut table = Table::new("matmul_dw");
    // (T, K, N)
    let shapes = [(1, 1, 1), (1, 256, 3), (3, 31, 1757), (33, 97, 5), (70, 65, 33), (64, 128, 64), (129, 172, 31)];
    for (profile, gpu) in profiles() {
        for (t, k, n) in shapes {
            let mut random = Random::new((t * 7919 + n * 31 + k) as u64);
            let [dy, x] = [n, k].map(|cols| random.normals((t * cols) as usize, 1.0));
            let want = backward::matmul_dw(&dy, &x, t as usize, k as usize, n as usize);
            let (dy, x) = (filled(t, n, &dy), filled(t, k, &x));
            let case = (&gpu, t, n, k);
            let abs = 1e-5 * (t as f32).sqrt();
            both_ways(
                &mut table,
                &format!("[{n}, {t}] x [{t}, {k}], {profile}"),
                case,
                (&want, abs),
                |plan, dw, to| matmul_dw(plan, "dw", &dy, &x, dw, 0, to),
            );
        }
    }
    table.finish();
}

/// Powers of two for gradients of all magnitudes.
#[test]
fn row_scale_sizes() {
    let mut table = Table::new("row_scale");
    for (profile, gpu) in profiles() {
        for (t, n) in SIZES {
            let mut dy = magnitudes(t, n, -40..40);
            dy[(t * n) as usize / 2] = 0.0;
            if t > 2 {
                dy[..n as usize].fill(0.0); // a token without gradients, and one whose are not finite
                dy[n as usize] = f32::NAN;
            }
            let scales = buffer(&vec![POISON; t as usize + 1]);
            let tensor = filled(t, n, &dy);
            let outcome = run(&gpu, frame(0, t), |plan| row_scale(plan, "scales", (&tensor).into(), &scales));
            let found = || {
                let bytes = peregrine::block_on(gpu.read(&scales, 0, t as u64 * 4)).unwrap();
                close("scales", &bytemuck::pod_collect_to_vec(&bytes), &backward::row_scale(&dy, n as usize), 0.0, 0.0)
            };
            table.row(&format!("[{t}, {n}], {profile}"), outcome.and_then(|()| found()).map(drop));
        }
    }
    table.finish();
}

/// dy [T, N] whose tokens differ by powers of ten.
fn magnitudes(t: u32, n: u32, powers: std::ops::Range<i32>) -> Vec<f32> {
    let mut random = Random::new((t * 31 + n) as u64);
    let mut dy = random.normals((t * n) as usize, 1.0);
    for (i, token) in dy.chunks_mut(n as usize).enumerate() {
        let power = powers.start + (i as i32 * 7919 + 5).rem_euclid(powers.len() as i32);
        token.iter_mut().for_each(|v| *v *= 10f32.powi(power));
    }
    dy
}

/// The backward matrices on hardware for small ones, in its emulation: with f32 and with halves, whose tokens keep their precision
/// however small their gradients are.
#[test]
fn matmul_backward_on_small_matrices() {
    let mut table = Table::new("matmul_dx and matmul_dw by small matrices");
    // (T, K, N): one of each, odd ones, tiles and one more, several workgroups either way
    let shapes = [(1, 256, 1), (3, 256, 65), (33, 512, 31), (70, 768, 32)];
    let odd = [(1, 1, 1), (33, 97, 5), (3, 31, 1757), (32, 1757, 3), (129, 172, 31)]; // plain formats only
    let plain = Profile { lanes: false, subgroups: false, eights: false, int8: false, ..gpu().profile() };
    for (matrix, near) in [(Matrix::Emulated, 1e-5), (Matrix::EmulatedHalves, 2e-3)] {
        let gpu = gpu().with_profile(Profile { matrix: Some(matrix), ..plain });
        for format in Format::ALL {
            let shapes = shapes.iter().chain(if format.block_weights() == 1 { &odd[..] } else { &[] });
            for &(t, k, n) in shapes {
                let [ts, ks, ns] = [t, k, n].map(|v| v as usize);
                let (w, w_floats) = random_weight(&gpu, format, &mut Random::new((n * 31 + k) as u64), n, k);
                let (dy, dx) = (magnitudes(t, n, -12..6), poisoned(t, k));
                let want = backward::matmul_dx(&dy, &w_floats, ts, ks, ns);
                // each token beside its own largest numbers
                let norm = |v: &[f32]| v.iter().map(|v| (*v as f64).powi(2)).sum::<f64>().sqrt();
                let size = w_floats.iter().fold(0.0f32, |most, w| most.max(w.abs())).max(1e-30) as f64;
                let beside = |dx: &[f32]| -> Vec<f32> {
                    let rows = dx.chunks_exact(ks).zip(dy.chunks_exact(ns));
                    rows.flat_map(|(dx, dy)| dx.iter().map(move |v| (*v as f64 / (norm(dy) * size)) as f32)).collect()
                };
                let tensor = filled(t, n, &dy);
                let outcome = run(&gpu, frame(0, t), |plan| matmul_dx(plan, "dx", &tensor, &w, &dx, Gradient::Store))
                    .and_then(|()| close("dx", &beside(&read_guarded(&dx, t)), &beside(&want), near, near));
                table.row(&format!("{} [{t}, {n}] x [{n}, {k}], {matrix:?}", format.name()), outcome.map(drop));
            }
        }
        for (t, k, n) in shapes.into_iter().chain(odd) {
            let mut random = Random::new((t * 7919 + n * 31 + k) as u64);
            let [dy, x] = [n, k].map(|cols| random.normals((t * cols) as usize, 1.0));
            let dy: Vec<f32> = dy.iter().map(|v| v * 1e-9).collect(); // of no size as halves
            let want = backward::matmul_dw(&dy, &x, t as usize, k as usize, n as usize);
            let (tensor, x, dw) = (filled(t, n, &dy), filled(t, k, &x), poisoned(n, k));
            let outcome = run(&gpu, frame(0, t), |plan| matmul_dw(plan, "dw", &tensor, &x, &dw, 0, Gradient::Store));
            let abs = 1e-9 * near * (t as f32).sqrt() * 4.0;
            let outcome = outcome.and_then(|()| close("dw", &read_guarded(&dw, n), &want, abs, near));
            table.row(&format!("dw [{n}, {t}] x [{t}, {k}], {matrix:?}"), outcome.map(drop));
        }
    }
    table.finish();
}

/// Gradients that lie in some columns of a wider tensor, as those of one tensor in a fused matrix do. The others are not to
/// be read.
#[test]
fn matmul_backward_of_columns() {
    let mut table = Table::new("matmul_dx and matmul_dw of columns");
    // (T, K, N): one of each, odd ones, several workgroups either way
    let shapes = [(1, 1, 1), (3, 31, 65), (33, 97, 5), (70, 65, 131), (5, 1757, 3)];
    let emulated = Profile { lanes: false, eights: false, int8: false, ..gpu().profile() };
    let emulated = gpu().with_profile(Profile { matrix: Some(Matrix::Emulated), ..emulated });
    for (profile, gpu) in profiles().into_iter().chain([("small matrices".to_string(), emulated)]) {
        for (t, k, n) in shapes {
            for (first, step, scale) in [(0, 1, 0.5), (3, 1, -0.75), (5, 2, 2.5)] {
                let mut random = Random::new((t * 7919 + n * 31 + k) as u64);
                let (w, w_floats) = random_weight(&gpu, Format::F32, &mut random, n, k);
                let [dy_floats, x_floats] = [n, k].map(|cols| random.normals((t * cols) as usize, 1.0));
                let scaled: Vec<f32> = dy_floats.iter().map(|v| v * scale).collect();
                let (columns, width) = (Columns { first, step, count: n }, first + n * step + 2);
                let mut wide = vec![POISON; (t * width) as usize];
                for (row, dy) in wide.chunks_mut(width as usize).zip(dy_floats.chunks(n as usize)) {
                    let places = row[first as usize..].iter_mut().step_by(step as usize);
                    places.zip(dy).for_each(|(place, v)| *place = *v);
                }
                let (wide, x) = (filled(t, width, &wide), filled(t, k, &x_floats));
                let dy = Dy { tensor: &wide, columns, scale };
                let row = format!("[{t}, {n}] of {columns:?}, scale {scale}, K {k}, {profile}");
                let [ts, ks, ns] = [t, k, n].map(|v| v as usize);

                let want = backward::matmul_dx(&scaled, &w_floats, ts, ks, ns);
                let abs = 3e-5 * (n as f32).sqrt();
                both_ways(&mut table, &format!("{row}, dx"), (&gpu, t, t, k), (&want, abs), |plan, dx, to| {
                    matmul_dx(plan, "dx", dy, &w, dx, to)
                });

                let want = backward::matmul_dw(&scaled, &x_floats, ts, ks, ns);
                let abs = 3e-5 * (t as f32).sqrt();
                both_ways(&mut table, &format!("{row}, dw"), (&gpu, t, n, k), (&want, abs), |plan, dw, to| {
                    matmul_dw(plan, "dw", dy, &x, dw, 0, to)
                });
                // into some rows of a larger gradient, whose others stay
                let (first_row, rows) = (3, n + 5);
                let before = random.normals((rows * k) as usize, 1.0);
                for to in [Gradient::Store, Gradient::Add] {
                    let mut whole = before.clone();
                    let own = &mut whole[(first_row * k) as usize..][..want.len()];
                    own.iter_mut()
                        .zip(&want)
                        .for_each(|(v, want)| *v = want + if to == Gradient::Add { *v } else { 0.0 });
                    let dw = filled(rows, k, &before);
                    let outcome = run(&gpu, frame(0, t), |plan| matmul_dw(plan, "dw", dy, &x, &dw, first_row, to));
                    let outcome = outcome.and_then(|()| {
                        let got = read_guarded(&dw, rows);
                        close("dw", &got, &whole, abs, 1e-5)?;
                        same_bits("other rows", &got, &before, |i| {
                            !(first_row..first_row + n).contains(&(i as u32 / k))
                        })
                    });
                    table.row(&format!("{row}, dw from row {first_row} on, {to:?}"), outcome);
                }
            }
        }
    }
    table.finish();
}

#[test]
fn add_bias_backward_sizes() {
    let mut table = Table::new("add_bias_backward");
    for (t, n) in SIZES {
        let dy = Random::new((t * 7919 + n) as u64).normals((t * n) as usize, 1.0);
        let want = backward::add_bias_backward(&dy, n as usize);
        let dy = filled(t, n, &dy);
        both_ways(&mut table, &format!("[{t}, {n}]"), (gpu(), t, 1, n), (&want, 1e-5), |plan, dbias, to| {
            add_bias_backward(plan, "dbias", &dy, dbias, to)
        });
    }
    table.finish();
}

#[test]
fn rms_norm_backward_sizes() {
    let mut table = Table::new("rms_norm_backward");
    let sizes = SIZES.map(|(t, cols)| (t, 1, cols)).into_iter().chain([(3, 9, 64), (33, 2, 128), (1, 5, 36)]); // heads
    for (profile, gpu) in profiles() {
        for (t, rows, cols) in sizes.clone() {
            let mut random = Random::new((t * 7919 + rows * 31 + cols) as u64);
            let [x, dy] = [1.5, 1.0].map(|scale| random.normals((t * rows * cols) as usize, scale));
            let gain = random.normals(cols as usize, 1.0);
            let (want_dx, want_dgain) = backward::rms_norm_backward(&x, &gain, 1e-5, &dy);
            let gain = Vector::upload(&gpu, "gain", &gain).unwrap();
            let (x, dy) = (filled(t, rows * cols, &x), filled(t, rows * cols, &dy));
            let (scrap, inverses) = (poisoned(t, rows * cols), poisoned(t, rows));
            let row = format!("[{t}, {rows}, {cols}], {profile}");
            let case = (&gpu, t, t, rows * cols);
            both_ways(&mut table, &format!("{row}, dx"), case, (&want_dx, 2e-5), |plan, dx, to| {
                rms_norm_backward(plan, "dx", &x, &gain, 1e-5, &dy, dx, to, &inverses)
            });
            let case = (&gpu, t, 1, cols);
            both_ways(&mut table, &format!("{row}, dgain"), case, (&want_dgain, 2e-5), |plan, dgain, to| {
                rms_norm_backward(plan, "dx", &x, &gain, 1e-5, &dy, &scrap, Gradient::Store, &inverses)?;
                rms_norm_dgain(plan, "dgain", &x, &dy, &inverses, dgain, to)
            });
        }
    }
    table.finish();
}

#[test]
fn swiglu_backward_sizes() {
    let mut table = Table::new("swiglu_backward");
    for (t, f) in SIZES {
        let mut random = Random::new((t * 7919 + f) as u64);
        let count = (t * f) as usize;
        let (mut gate, up, dy) = (random.normals(count, 3.0), random.normals(count, 1.0), random.normals(count, 1.0));
        gate[0] = -200.0; // whose exponential leaves f32
        let (dgate, dup) = backward::swiglu_backward(&gate, &up, &dy);
        let dy = filled(t, f, &dy);
        for lie in [Lie::Stacked, Lie::Alternating] {
            let joined = |gate: &[f32], up: &[f32]| -> Vec<f32> {
                let rows = gate.chunks(f as usize).zip(up.chunks(f as usize));
                match lie {
                    Lie::Stacked => rows.flat_map(|(gate, up)| [gate, up].concat()).collect(),
                    Lie::Alternating => {
                        rows.flat_map(|(gate, up)| gate.iter().zip(up).flat_map(|(g, u)| [*g, *u])).collect()
                    }
                }
            };
            let (gate_up, dgate_up) = (filled(t, 2 * f, &joined(&gate, &up)), poisoned(t, 2 * f));
            let outcome =
                run(gpu(), frame(0, t), |plan| swiglu_backward(plan, "dgate_up", &gate_up, lie, &dy, &dgate_up))
                    .and_then(|()| close("dgate_up", &read_guarded(&dgate_up, t), &joined(&dgate, &dup), 2e-5, 1e-5));
            table.row(&format!("[{t}, {f}] {lie:?}"), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn embed_backward_sizes() {
    let mut table = Table::new("embed_backward");
    // (T, V, C): more tokens than rows and fewer, an id above 65,535
    for (t, v, c) in [(1, 1, 1), (3, 7, 31), (70, 5, 65), (33, 1757, 97), (5, 70_001, 260)] {
        let mut random = Random::new((t * 7919 + v * 31 + c) as u64);
        let dy = random.normals((t * c) as usize, 1.0);
        let mut ids = random.ids(t as usize, v);
        ids[t as usize / 2] = v - 1;
        let want = backward::embed_backward(&dy, &ids, v as usize, c as usize);
        let before = random.normals((v * c) as usize, 1.0);
        let dy = filled(t, c, &dy);
        let id_buffer = buffer(&ids);
        // the whole table at once, and in two parts
        for parts in [vec![(0, v)], vec![(0, v / 2), (v / 2, v - v / 2)]] {
            for (first, rows) in parts.into_iter().filter(|&(_, rows)| rows > 0) {
                let [want, before] = [&want, &before].map(|x| &x[(first * c) as usize..][..(rows * c) as usize]);
                let dtable = filled(rows, c, before);
                let outcome = run(gpu(), frame(0, t), |plan| {
                    embed_backward(plan, "dtable", &id_buffer, &dy, &dtable, (first, rows))
                })
                .and_then(|()| close("dtable", &read_guarded(&dtable, rows), &ops::add(before, want), 1e-5, 1e-5));
                table.row(&format!("[{t}, {c}] into rows {first} to {} of {v}", first + rows), outcome.map(drop));
            }
        }
    }
    table.finish();
}

#[test]
fn rope_backward_sizes() {
    let mut table = Table::new("rope_backward");
    // (T, heads that turn, heads, D, pairs): whole heads and a part of each
    for (t, turned, heads, d, pairs) in [(1, 1, 1, 4, 2), (3, 5, 7, 36, 18), (33, 12, 15, 64, 32), (5, 3, 4, 128, 16)] {
        for pairing in [Pairing::Neighbours, Pairing::Halves] {
            let mut random = Random::new((t * 7919 + heads * 31 + d) as u64);
            let dy = random.normals((t * heads * d) as usize, 1.0);
            let inv_freq = (0..pairs).map(|i| 0.7f32.powi(i)).collect();
            let rope = Rope { dims: 2 * pairs as usize, inv_freq, magnitude: 1.25, pairing };
            let positions: Vec<u32> = (0..t).map(|i| (i * 37 + 5) % 91).collect();
            let cut = |x: &[f32]| -> Vec<f32> {
                x.chunks((heads * d) as usize).flat_map(|token| &token[..(turned * d) as usize]).copied().collect()
            };
            let back = backward::rope_backward(&cut(&dy), &positions, turned as usize, d as usize, &rope);
            let mut want = dy.clone();
            for (want, back) in want.chunks_mut((heads * d) as usize).zip(back.chunks((turned * d) as usize)) {
                want[..back.len()].copy_from_slice(back);
            }
            let dqkv = filled(t, heads * d, &dy);
            let angles = Angles::upload(gpu(), &rope, 91).unwrap();
            let position_buffer = buffer(&positions);
            let outcome = run(gpu(), frame(0, t), |plan| {
                rope_backward(plan, "dqkv", &angles, &position_buffer, turned, d, &dqkv)
            })
            .and_then(|()| close("dqkv", &read_guarded(&dqkv, t), &want, 2e-6, 1e-5));
            table.row(&format!("[{t}, {turned} of {heads}, {d}], {pairs} pairs, {pairing:?}"), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn cross_entropy_over_shards() {
    let mut table = Table::new("cross_entropy");
    // (T, V, ids of a shard): one shard, several, the last of them short, labels above 65,535
    for (profile, gpu) in profiles() {
        for (t, v, shard) in [(1, 1, 1), (3, 31, 31), (33, 1757, 500), (5, 70_001, 32_768)] {
            let mut random = Random::new((t * 7919 + v) as u64);
            let (mut logits, dy) = (random.normals((t * v) as usize, 4.0), random.normals(t as usize, 1.0));
            logits[0] = 90.0; // a sure token, and one without a chance
            logits[v as usize - 1] -= 200.0;
            let mut labels = random.ids(t as usize, v);
            (labels[0], labels[t as usize / 2]) = (v - 1, IGNORED);
            let want = backward::cross_entropy(&logits, &labels, v as usize);
            let want_backward = backward::cross_entropy_backward(&logits, &labels, v as usize, &dy);
            let seen = vec![[POISON; 4]; t as usize];
            let (labels, dy, seen) = (buffer(&labels), buffer(&dy), buffer(&seen));
            let columns = |x: &[f32], first: u32| -> Vec<f32> {
                let end = v.min(first + shard) as usize;
                x.chunks(v as usize).flat_map(|row| &row[first as usize..end]).copied().collect()
            };
            let shards: Vec<(u32, Tensor)> = (0..v)
                .step_by(shard as usize)
                .map(|first| (first, filled(t, shard.min(v - first), &columns(&logits, first))))
                .collect();
            let row = format!("[{t}, {v}] by {shard}, {profile}");
            let outcome = run(&gpu, frame(0, t), |plan| {
                shards
                    .iter()
                    .try_for_each(|(first, logits)| cross_entropy(plan, "loss", logits, *first, &labels, &seen))
            });
            let losses = || {
                let bytes = peregrine::block_on(gpu.read(&seen, 0, t as u64 * 16)).unwrap();
                let seen: Vec<[f32; 4]> = bytemuck::pod_collect_to_vec(&bytes);
                close("loss", &seen.iter().map(|seen| seen[3]).collect::<Vec<_>>(), &want, 1e-4, 1e-5)
            };
            table.row(&row, outcome.and_then(|()| losses()).map(drop));
            let outcome = run(&gpu, frame(0, t), |plan| {
                shards.iter().try_for_each(|(first, logits)| {
                    cross_entropy_backward(plan, "dlogits", logits, *first, &labels, &dy, &seen)
                })
            });
            table.row(&row, outcome);
            for (first, logits) in &shards {
                let outcome = close("dlogits", &read_guarded(logits, t), &columns(&want_backward, *first), 1e-6, 1e-4);
                table.row(&format!("{row}, dlogits from {first}"), outcome.map(drop));
            }
        }
    }
    table.finish();
}

#[test]
fn broken_logits_break_the_loss() {
    let mut table = Table::new("cross_entropy, broken logits");
    for (profile, gpu) in profiles() {
        for (broken, bits) in [("NaN", 0x7fc0_0000u32), ("-NaN", 0xffc0_0000), ("infinity", 0x7f80_0000)] {
            // in the first shard and in the last; the label lies elsewhere
            for (at, label) in [(3, 900), (999, 5)] {
                let (t, v, shard) = (3, 1000, 400);
                let mut logits = Random::new(7).normals((t * v) as usize, 1.0);
                logits[(v + at) as usize] = f32::from_bits(bits); // of the second token
                let (labels, seen) = (buffer(&vec![label; t as usize]), buffer(&vec![[POISON; 4]; t as usize]));
                let outcome = run(&gpu, frame(0, t), |plan| {
                    (0..v).step_by(shard as usize).try_for_each(|first| {
                        let end = v.min(first + shard);
                        let rows = logits.chunks(v as usize).map(|row| &row[first as usize..end as usize]);
                        let logits = filled(t, end - first, &rows.collect::<Vec<_>>().concat());
                        cross_entropy(plan, "loss", &logits, first, &labels, &seen)
                    })
                });
                let found = || {
                    let bytes = peregrine::block_on(gpu.read(&seen, 0, t as u64 * 16)).unwrap();
                    let seen: Vec<[f32; 4]> = bytemuck::pod_collect_to_vec(&bytes);
                    let finite: Vec<bool> = seen.iter().map(|seen| seen[3].is_finite()).collect();
                    if finite == [true, false, true] { Ok(()) } else { Err(format!("{seen:?}")) }
                };
                table.row(&format!("{broken} at {at}, {profile}"), outcome.and_then(|()| found()));
            }
        }
    }
    table.finish();
}

#[test]
fn attention_of_sequences() {
    let mut table = Table::new("attention_backward");
    // (tokens of each sequence, H, KV, D): one token, several sequences, more than a workgroup of keys, the largest head
    let cases: [(&[u32], u32, u32, u32); 8] = [
        (&[1], 1, 1, 4),
        (&[1], 3, 1, 64),
        (&[2, 7, 1, 30, 11], 6, 2, 96),
        (&[3, 1, 5], 4, 2, 32),
        (&[67], 9, 3, 64),
        (&[31, 70, 2], 2, 2, 36),
        (&[5, 3], 2, 1, 256),
        (&[130], 3, 1, 8),
    ];
    for (profile, gpu) in profiles() {
        for (lengths, h, kv, d) in cases {
            let t: u32 = lengths.iter().sum();
            let mut random = Random::new((t * 7919 + h * 31 + d) as u64);
            let shape = Heads { heads: h, kv_heads: kv, head_size: d };
            let (width, y_width) = ((h + 2 * kv) * d, h * d);
            let qkv = random.normals((t * width) as usize, 1.0);
            let dy = random.normals((t * y_width) as usize, 1.0);
            let (mut want_y, mut want_dqkv, mut bounds, mut first) = (Vec::new(), Vec::new(), Vec::new(), 0);
            for &length in lengths {
                let part = |from: u32, heads: u32| -> Vec<f32> {
                    let tokens = qkv.chunks(width as usize).skip(first as usize).take(length as usize);
                    tokens.flat_map(|token| &token[(from * d) as usize..][..(heads * d) as usize]).copied().collect()
                };
                let (q, k, v) = (part(0, h), part(h, kv), part(h + kv, kv));
                let dy = &dy[(first * y_width) as usize..][..(length * y_width) as usize];
                let [hs, kvs, ds] = [h, kv, d].map(|n| n as usize);
                want_y.extend(ops::attention(&q, &k, &v, 0, hs, kvs, ds));
                let (dq, dk, dv) = backward::attention_backward(&q, &k, &v, hs, kvs, ds, dy);
                for i in 0..length as usize {
                    for (x, heads) in [(&dq, hs), (&dk, kvs), (&dv, kvs)] {
                        want_dqkv.extend_from_slice(&x[i * heads * ds..][..heads * ds]);
                    }
                }
                bounds.extend(vec![[first, first + length]; length as usize]);
                first += length;
            }
            let (qkv, dy) = (filled(t, width, &qkv), filled(t, y_width, &dy));
            let (y, dqkv) = (poisoned(t, y_width), poisoned(t, width));
            let [log_sums, means] = [(); 2].map(|()| buffer(&vec![POISON; (t * h) as usize]));
            let bounds = buffer(&bounds);
            let outcome = run(&gpu, frame(0, t), |plan| {
                attention_sequence(plan, "y", shape, &bounds, &qkv, &y, &log_sums)?;
                let (qkv, dy, dqkv) = (&qkv, &dy, &dqkv);
                let (bounds, log_sums, means) = (&bounds, &log_sums, &means);
                let of = AttentionBackward { shape, bounds, qkv, dy, log_sums, means, dqkv };
                attention_dq(plan, "dq", of, &y)?;
                attention_dkv(plan, "dkv", of)
            });
            let row = format!("{lengths:?}, {h} heads of {d}, {kv} kv, {profile}");
            let y_outcome = outcome.and_then(|()| close("y", &read_guarded(&y, t), &want_y, 1e-5, 1e-5));
            table.row(&format!("{row}, y"), y_outcome.map(drop));
            let outcome = close("dqkv", &read_guarded(&dqkv, t), &want_dqkv, 2e-5, 1e-4);
            table.row(&format!("{row}, dqkv"), outcome.map(drop));
        }
    }
    table.finish();
}
