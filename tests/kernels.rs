//! Every kernel against its CPU reference, over awkward sizes, on random data, into poisoned outputs, under every
//! profile of the device. A failing row names kernel, profile and size.

mod common;

use common::gpu::*;
use common::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::attention::Splits;
use peregrine::kernels::linear::{Finish, Input, Linear, Squares, linear, linear_with};
use peregrine::kernels::rms_norm::Rows;
use peregrine::kernels::rope_kv::{Angles, HeadNorms, KvCache};
use peregrine::kernels::sample::{Chosen, Mark, Sample, Settings};
use peregrine::kernels::swiglu::Lie;
use peregrine::kernels::{self, Columns, KvFormat};
use peregrine::model::{Pairing, Rope};
use peregrine::plan::{Plan, PlanBuilder};
use peregrine::reference::ops;
use peregrine::tensor::{Element, Tensor};
use peregrine::weight::{Data, Order, Source, Vector, Weight};
use peregrine::{Gpu, Sampler, Sampling, block_on, wgpu};

/// Row lengths: 1, odd, prime, whole blocks, several workgroups.
const COLS: [u32; 7] = [1, 3, 31, 64, 97, 576, 1757];
/// Tokens of a pass: one, odd, a whole tile and one more.
const TOKENS: [u32; 4] = [1, 3, 8, 33];

fn vector(values: &[f32]) -> Vector {
    Vector::upload(gpu(), "vector", values).unwrap()
}

/// All (profile, tokens, cols) of the tables above.
fn sizes() -> Vec<(String, Gpu, u32, u32)> {
    let mut all = Vec::new();
    for (name, gpu) in profiles() {
        for tokens in TOKENS {
            for cols in COLS {
                all.push((format!("{name}, T {tokens}, C {cols}"), gpu.clone(), tokens, cols));
            }
        }
    }
    all
}

/// Every kernel of y = W x in every format, with a bias.
#[test]
fn linear_in_every_format() {
    let mut table = Table::new("linear");
    // (T, N, K): one row, odd rows, more than a workgroup's rows, K of one block and of several super-blocks
    let shapes = [(1, 1, 256), (1, 65, 256), (2, 37, 512), (1, 131, 768), (9, 65, 256), (33, 70, 512), (8, 64, 256)];
    let odd = [(1, 5, 1), (3, 33, 97), (1, 172, 64), (33, 64, 172), (67, 131, 33), (1, 3, 1757)]; // plain formats only
    for (profile, gpu) in profiles() {
        for format in Format::ALL {
            let shapes = shapes.iter().chain(if format.block_weights() == 1 { &odd[..] } else { &[] });
            for &(t, n, k) in shapes {
                let mut random = Random::new((t * 7919 + n * 31 + k) as u64);
                let (w, w_floats) = random_weight(&gpu, format, &mut random, n, k);
                let x_floats = random.normals((t * k) as usize, 1.0);
                let bias_floats = random.normals(n as usize, 1.0);
                let (x, bias) = (filled(t, k, &x_floats), vector(&bias_floats));
                let want = ops::matmul(&x_floats, &w_floats, t as usize, k as usize, n as usize);
                let want = ops::add_bias(&want, &bias_floats);
                for kernel in kernels_of(&gpu).into_iter().filter(|kernel| t == 1 || *kernel != Linear::MatvecLane) {
                    let y = poisoned(t, n);
                    let outcome = run(&gpu, frame(0, t), |plan| {
                        let finish = Finish::Store(&y);
                        linear_with(plan, "y", kernel, &x, Input::Plain, &w, Some(&bias), Rows::All, finish)
                    })
                    .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-5 * (k as f32).sqrt(), 1e-5));
                    table.row(
                        &format!("{kernel:?} {} [{t}, {k}] x [{n}, {k}], {profile}", format.name()),
                        outcome.map(drop),
                    );
                }
            }
        }
    }
    table.finish();
}

/// Those that a profile may choose.
fn kernels_of(gpu: &Gpu) -> Vec<Linear> {
    let lanes = |kernel: &Linear| matches!(kernel, Linear::MatvecLane | Linear::MatmulLane(_));
    Linear::ALL.into_iter().filter(|kernel| lanes(kernel) == gpu.profile().lanes).collect()
}

/// What becomes of the results: every finish, with every kernel that it may follow.
#[test]
fn finishes_of_linear() {
    let mut table = Table::new("finishes");
    let (format, k) = (Format::Q4_1, 96);
    for (profile, gpu) in profiles() {
        for (t, n) in [(1, 1), (1, 3), (1, 64), (1, 130), (1, 1757), (3, 66), (9, 130), (70, 5)] {
            let mut random = Random::new((t * 7919 + n * 31) as u64);
            let x_floats = random.normals((t * k) as usize, 1.0);
            let x = filled(t, k, &x_floats);
            let abs = 1e-5 * (k as f32).sqrt();
            for kernel in kernels_of(&gpu).into_iter().filter(|kernel| t == 1 || *kernel != Linear::MatvecLane) {
                let row = |finish: &str| format!("{finish} after {kernel:?} [{t}, {k}] x [{n}, {k}], {profile}");
                let matmul = |w: &[f32], n: u32| ops::matmul(&x_floats, w, t as usize, k as usize, n as usize);
                let (w, w_floats) = random_weight(&gpu, format, &mut random, n, k);
                let before = random.normals((t * n) as usize, 1.0);
                let want = ops::add(&before, &matmul(&w_floats, n));
                let go = |input: Input, x: &Tensor, w: &Weight, finish: Finish| {
                    run(&gpu, frame(0, t), |plan| linear_with(plan, "y", kernel, x, input, w, None, Rows::All, finish))
                };

                let y = filled(t, n, &before);
                let outcome = go(Input::Plain, &x, &w, Finish::Add(&y));
                let outcome = outcome.and_then(|()| close("y", &read_guarded(&y, t), &want, abs, 1e-5));
                table.row(&row("add"), outcome.map(drop));

                let (residual, y) = (filled(t, n, &before), poisoned(t, n));
                let outcome = go(Input::Plain, &x, &w, Finish::Sum { residual: &residual, y: &y });
                let outcome = outcome.and_then(|()| close("y", &read_guarded(&y, t), &want, abs, 1e-5));
                table.row(&row("sum"), outcome.map(drop));

                for (first, step, scale) in [(0, 1, 1.0), (3, 1, -0.75), (5, 2, 2.5)] {
                    let width = first + n * step + 2;
                    let wide = random.normals((t * width) as usize, 1.0);
                    let mut want_wide = wide.clone();
                    let results = matmul(&w_floats, n);
                    for (row, results) in want_wide.chunks_mut(width as usize).zip(results.chunks(n as usize)) {
                        let columns = row[first as usize..].iter_mut().step_by(step as usize);
                        columns.zip(results).for_each(|(v, result)| *v += scale * result);
                    }
                    let y = filled(t, width, &wide);
                    let columns = Columns { first, step, count: n };
                    let outcome = go(Input::Plain, &x, &w, Finish::AddColumns { y: &y, columns, scale });
                    let outcome = outcome.and_then(|()| {
                        let got = read_guarded(&y, t);
                        close("y", &got, &want_wide, 3.0 * abs, 1e-5)?;
                        same_bits("other columns", &got, &wide, |i| !among(columns, i as u32 % width))
                    });
                    table.row(&row(&format!("add_columns {columns:?} of {width}, scale {scale},")), outcome);
                }

                let bytes: Vec<Vec<u8>> =
                    (0..2).map(|_| common::tiny::random_weights(format, (n * k) as usize, 0.5, &mut random)).collect();
                let floats = |bytes: &[u8]| {
                    let mut floats = vec![0.0; (n * k) as usize];
                    format.decode(bytes, &mut floats);
                    floats
                };
                let source = |data| Source { format, rows: n, data: Data::Here(data) };
                let both = block_on(Weight::alternating(&gpu, "w", k, [source(&bytes[0]), source(&bytes[1])])).unwrap();
                let want_swiglu = ops::swiglu(&matmul(&floats(&bytes[0]), n), &matmul(&floats(&bytes[1]), n));
                let y = poisoned(t, n);
                let outcome = go(Input::Plain, &x, &both, Finish::Swiglu(&y));
                let most = want_swiglu.iter().fold(1.0f32, |most, v| most.max(v.abs()));
                let outcome = outcome.and_then(|()| close("y", &read_guarded(&y, t), &want_swiglu, abs * most, 1e-4));
                table.row(&row("swiglu"), outcome.map(drop));

                if t > 1
                    || matches!(
                        kernel,
                        Linear::Matmul(_) | Linear::MatmulMatrix(_) | Linear::MatmulLane(_) | Linear::Matvec(4 | 8)
                    )
                {
                    continue; // the others follow matvec, for one token
                }
                // the next step, of another matrix, divides by the root mean square
                let gain_floats = random.normals(n as usize, 1.0);
                let (gain, squares) = (vector(&gain_floats), Squares::new(&gpu, n).unwrap());
                let next_k = n.next_multiple_of(32);
                let (next, next_floats) = random_weight(&gpu, Format::F32, &mut random, 37, n);
                let want_normed = ops::rms_norm(&want, &gain_floats, 1e-5);
                let want_next = ops::matmul(&want_normed, &next_floats, 1, n as usize, 37);
                let (y, normed, z) = (filled(1, n, &before), poisoned(1, n), poisoned(1, 37));
                zero_padding(&normed);
                let finish = Finish::AddNorm { y: &y, gain: &gain, normed: &normed, squares: &squares };
                let outcome = go(Input::Plain, &x, &w, finish)
                    .and_then(|()| {
                        go(Input::Normed { squares: &squares, eps: 1e-5 }, &normed, &next, Finish::Store(&z))
                    })
                    .and_then(|()| close("y", &read_guarded(&y, 1), &want, abs, 1e-5).map(drop))
                    .and_then(|()| {
                        close("z", &read_guarded(&z, 1), &want_next, 3e-5 * (next_k as f32).sqrt(), 1e-4).map(drop)
                    });
                table.row(&row("add_norm"), outcome);

                if !gpu.profile().lanes {
                    continue; // bytes are made by lanes only
                }
                let (y, in_bytes) = (filled(1, n, &before), Tensor::of(&gpu, "bytes", 1, n, Element::Bytes).unwrap());
                let finish = Finish::AddNorm { y: &y, gain: &gain, normed: &in_bytes, squares: &squares };
                let gained: Vec<f32> = want.iter().zip(&gain_floats).map(|(v, g)| v * g).collect();
                table.row(
                    &row("add_norm_bytes"),
                    go(Input::Plain, &x, &w, finish).and_then(|()| in_steps(&in_bytes, &gained)),
                );
                let in_bytes = Tensor::of(&gpu, "bytes", 1, n, Element::Bytes).unwrap();
                let outcome = go(Input::Plain, &x, &both, Finish::Swiglu(&in_bytes));
                table.row(&row("swiglu_bytes"), outcome.and_then(|()| in_steps(&in_bytes, &want_swiglu)));
            }
        }
    }
    table.finish();
}

/// The padding behind a poisoned row is zero, as it is in a real tensor.
fn zero_padding(tensor: &Tensor) {
    let padding = vec![0.0f32; (tensor.stride() - tensor.cols) as usize];
    if !padding.is_empty() {
        gpu().queue().write_buffer(&tensor.buffer, tensor.cols as u64 * 4, bytemuck::cast_slice(&padding));
    }
}

/// A step of the low bytes, as a share of the largest number of the block.
const STEP: f32 = 1.0 / 127.0 / 254.0;

/// Bytes stand for the wanted values if none is off by more than half a step of its block (and a little rounding).
fn in_steps(bytes: &Tensor, want: &[f32]) -> Result<(), String> {
    let got = block_on(bytes.read(gpu(), bytes.rows)).map_err(|e| e.to_string())?;
    for (i, (got, want)) in got.chunks(32).zip(want.chunks(32)).enumerate() {
        let most = want.iter().fold(0.0f32, |most, v| most.max(v.abs()));
        close(&format!("block {i}"), got, want, most * 0.51 * STEP + 1e-5 * most.max(1.0), 0.0)?;
    }
    Ok(())
}

/// Activations in bytes: against the reference on the values that the bytes stand for.
#[test]
fn quantize_and_linear_of_bytes() {
    let mut table = Table::new("bytes");
    for (t, k) in [(1, 1), (3, 31), (2, 64), (33, 97), (5, 1757), (1, 576)] {
        let mut random = Random::new((t * 31 + k) as u64);
        let mut x_floats = random.normals((t * k) as usize, 2.0);
        x_floats[..(k as usize).min(32)].fill(0.0); // a block of zeros
        let (x, bytes) = (filled(t, k, &x_floats), Tensor::of(gpu(), "bytes", t, k, Element::Bytes).unwrap());
        let outcome =
            run(gpu(), frame(0, t), |plan| kernels::quantize::quantize(plan, "y", &x, &bytes)).and_then(|()| {
                let got = block_on(bytes.read(gpu(), t)).map_err(|e| e.to_string())?;
                let most = x_floats.iter().fold(0.0f32, |most, v| most.max(v.abs()));
                // half a step, for values that lie between two
                close("y", &got, &ops::quantize(&x_floats, k as usize), most * 1.02 * STEP, 0.0)?;
                close("y", &got, &x_floats, most * 0.51 * STEP, 0.0).map(drop)
            });
        table.row(&format!("quantize [{t}, {k}]"), outcome);
    }
    for i in [0, 31, 32, 95] {
        let mut x_floats = Random::new(i as u64).normals(96, 2.0);
        x_floats[i] = f32::NAN;
        let (x, bytes) = (filled(1, 96, &x_floats), Tensor::of(gpu(), "bytes", 1, 96, Element::Bytes).unwrap());
        let outcome =
            run(gpu(), frame(0, 1), |plan| kernels::quantize::quantize(plan, "y", &x, &bytes)).and_then(|()| {
                let got = block_on(bytes.read(gpu(), 1)).map_err(|e| e.to_string())?;
                let not_numbers = (0..96).filter(|&i| got[i].is_nan()).collect::<Vec<_>>();
                let block = (i / 32 * 32..i / 32 * 32 + 32).collect::<Vec<_>>();
                (not_numbers == block).then_some(()).ok_or(format!("not numbers: {not_numbers:?}"))
            });
        table.row(&format!("a NaN at {i} makes its block NaN"), outcome);
    }
    let (_, lanes) = profiles().remove(0);
    for format in Format::ALL.into_iter().filter(|format| format.block_weights() > 1) {
        for (n, k) in [(1, 256), (65, 256), (130, 768)] {
            let mut random = Random::new((n * 31 + k) as u64);
            let (w, w_floats) = random_weight(&lanes, format, &mut random, n, k);
            let (x, bytes) =
                (filled(1, k, &random.normals(k as usize, 1.0)), Tensor::of(gpu(), "b", 1, k, Element::Bytes));
            let (bytes, y) = (bytes.unwrap(), poisoned(1, n));
            let outcome = run(&lanes, frame(0, 1), |plan| {
                kernels::quantize::quantize(plan, "bytes", &x, &bytes)?;
                linear(plan, "y", &bytes, Input::Plain, &w, None, Rows::All, Finish::Store(&y))
            })
            .and_then(|()| {
                let x = block_on(bytes.read(gpu(), 1)).map_err(|e| e.to_string())?;
                let want = ops::matmul(&x, &w_floats, 1, k as usize, n as usize);
                close("y", &read_guarded(&y, 1), &want, 1e-5 * (k as f32).sqrt(), 1e-5).map(drop)
            });
            table.row(&format!("matvec_lane {} [{n}, {k}]", format.name()), outcome);
        }
    }
    table.finish();
}

/// What lies on the GPU is the file's bytes, every one.
#[test]
fn weights_come_back_byte_for_byte() {
    let mut table = Table::new("weights");
    for format in Format::ALL {
        for rows in [1, 3, 64] {
            let k = 3 * format.block_weights().max(32) as u32;
            let data: Vec<u8> = {
                let mut random = Random::new(rows as u64);
                let bytes = (rows * k) as usize / format.block_weights() * format.block_bytes();
                (0..bytes).map(|_| random.below(256) as u8).collect()
            };
            let w = Weight::upload(gpu(), "w", format, rows, k, &data).unwrap();
            let read = |buffer: &wgpu::Buffer| block_on(gpu().read(buffer, 0, buffer.size())).unwrap();
            let part = &w.parts[0];
            // blocks of 32 weights a row, and of the file
            let (across, bytes) = (k as usize / 32, 32usize.div_ceil(format.block_weights()) * format.block_bytes());
            let back = if part.order == Order::Panels {
                let held = rows.next_multiple_of(32) as usize * across * 32 / format.block_weights();
                let panels =
                    peregrine::formats::layout::restore(format, held, &read(&part.quants), &read(&part.scales));
                let place = |row: usize, b: usize| ((row / 32 * across + b) * 32 + row % 32) * bytes;
                let places = (0..rows as usize).flat_map(|row| (0..across).map(move |b| place(row, b)));
                places.flat_map(|at| panels[at..at + bytes].to_vec()).collect()
            } else {
                let blocks = data.len() / format.block_bytes();
                peregrine::formats::layout::restore(format, blocks, &read(&part.quants), &read(&part.scales))
            };
            let wrong = data.iter().zip(&back).position(|(a, b)| a != b);
            let outcome = match (wrong, back.len() == data.len()) {
                (None, true) => Ok(()),
                _ => Err(format!("byte {wrong:?} differs, {} bytes of {}", back.len(), data.len())),
            };
            table.row(&format!("{} [{rows}, {k}]", format.name()), outcome);
        }
    }
    table.finish();
}

/// A matrix of several tensors, whose formats may differ, and one that is too large for a binding.
#[test]
fn linear_over_parts() {
    let mut table = Table::new("linear over parts");
    let (t, k) = (3, 256);
    let mut random = Random::new(5);
    let x_floats = random.normals((t * k) as usize, 1.0);
    let x = filled(t, k, &x_floats);
    for (name, formats) in [
        ("three alike", [Format::Q4_K; 3]),
        ("the last differs", [Format::Q4_K, Format::Q4_K, Format::Q6_K]),
        ("all differ", [Format::Q8_0, Format::F16, Format::Q5_1]),
    ] {
        let rows = [70, 33, 5];
        let tensors: Vec<Vec<u8>> = formats
            .iter()
            .zip(rows)
            .map(|(&format, n)| common::tiny::random_weights(format, (n * k) as usize, 0.5, &mut random))
            .collect();
        let mut floats = Vec::new();
        for ((&format, bytes), n) in formats.iter().zip(&tensors).zip(rows) {
            let mut part = vec![0.0; (n * k) as usize];
            format.decode(bytes, &mut part);
            floats.extend(part);
        }
        let sources: Vec<Source> = formats
            .iter()
            .zip(&tensors)
            .zip(rows)
            .map(|((&format, data), rows)| Source { format, rows, data: Data::Here(data) })
            .collect();
        let w = block_on(Weight::stacked(gpu(), "w", k, &sources)).unwrap();
        let y = poisoned(t, 108);
        let want = ops::matmul(&x_floats, &floats, t as usize, k as usize, 108);
        let outcome =
            run(gpu(), frame(0, t), |plan| linear(plan, "y", &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y)))
                .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-3, 1e-5));
        table.row(name, outcome.map(drop));
    }
    for format in [Format::Q8_0, Format::F32, Format::Q6_K] {
        let n = 150;
        let small =
            gpu().with_max_binding(70 * (k as u64 / format.block_weights() as u64 * format.block_bytes() as u64));
        let (w, w_floats) = random_weight(&small, format, &mut random, n, k);
        assert!(w.parts.len() > 2, "{} was not split", format.name());
        let y = poisoned(t, n);
        let want = ops::matmul(&x_floats, &w_floats, t as usize, k as usize, n as usize);
        let outcome = run(&small, frame(0, t), |plan| {
            linear(plan, "y", &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y))
        })
        .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-3, 1e-5));
        table.row(&format!("linear {}", format.name()), outcome.map(drop));

        let ids = random.ids(t as usize, n);
        let (ids_buffer, y) = (upload_ids(&ids), poisoned(t, k));
        let want = ops::embed(&w_floats, &ids, k as usize);
        let outcome = run(&small, frame(0, t), |plan| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y))
            .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-5, 1e-5));
        table.row(&format!("embed {}", format.name()), outcome.map(drop));
    }
    table.finish();
}

fn upload_ids(ids: &[u32]) -> wgpu::Buffer {
    let buffer = gpu().buffer("ids", ids.len() as u64 * 4).unwrap();
    gpu().upload(&buffer, [bytemuck::cast_slice(ids)]).unwrap();
    buffer
}

#[test]
fn embed() {
    let mut table = Table::new("embed");
    for format in Format::ALL {
        for (t, v, c) in [(1, 1, 256), (3, 37, 512), (33, 7, 256), (5, 9, 1757), (2, 3, 31)] {
            if c % format.block_weights() as u32 != 0 {
                continue;
            }
            let mut random = Random::new((t + c) as u64);
            let (w, floats) = random_weight(gpu(), format, &mut random, v, c);
            let ids = random.ids(t as usize, v);
            let (ids_buffer, y) = (upload_ids(&ids), poisoned(t, c));
            let want = ops::embed(&floats, &ids, c as usize);
            let outcome = run(gpu(), frame(0, t), |plan| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y))
                .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-5, 1e-5));
            table.row(&format!("{} T {t} V {v} C {c}", format.name()), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn rms_norm() {
    let mut table = Table::new("rms_norm");
    for (row, gpu, t, c) in sizes() {
        let mut random = Random::new((t * c) as u64);
        let (x_floats, gain) = (random.normals((t * c) as usize, 3.0), random.normals(c as usize, 1.0));
        let (x, y) = (filled(t, c, &x_floats), poisoned(t, c));
        let want = ops::rms_norm(&x_floats, &gain, 1e-5);
        let norm = |rows, y: &Tensor| {
            run(&gpu, frame(0, t), |plan| kernels::rms_norm::rms_norm(plan, "y", &x, &vector(&gain), 1e-5, rows, y))
        };
        let outcome = norm(Rows::All, &y).and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-5, 1e-5));
        table.row(&row, outcome.map(drop));

        let last = poisoned(1, c);
        let outcome = norm(Rows::Last, &last)
            .and_then(|()| close("y", &read_guarded(&last, 1), &want[((t - 1) * c) as usize..], 1e-5, 1e-5));
        table.row(&format!("{row}, last only"), outcome.map(drop));
    }
    // the QK norm: a row for each head of each token
    for (profile, gpu) in profiles() {
        for (t, heads, d) in [(1, 1, 4), (3, 5, 20), (2, 9, 64), (9, 3, 256)] {
            let mut random = Random::new(d as u64);
            let c = heads * d;
            let (x_floats, gain) = (random.normals((t * c) as usize, 3.0), random.normals(d as usize, 1.0));
            let (x, y) = (filled(t, c, &x_floats), poisoned(t, c));
            let want = ops::rms_norm(&x_floats, &gain, 1e-6);
            let outcome = run(&gpu, frame(0, t), |plan| {
                kernels::rms_norm::rms_norm(plan, "y", &x, &vector(&gain), 1e-6, Rows::All, &y)
            })
            .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-5, 1e-5));
            table.row(&format!("{profile}, T {t}, {heads} heads of {d}"), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn swiglu() {
    let mut table = Table::new("swiglu");
    for t in TOKENS {
        for f in COLS {
            let n = (t * f) as usize;
            let mut random = Random::new((t * 1000 + f) as u64);
            let (a, up) = (random.normals(n, 1.0), random.normals(n, 1.0));
            // gates far below zero, where exp(-g) leaves f32
            let gate: Vec<f32> = a.iter().enumerate().map(|(i, v)| if i % 5 == 0 { v * 100.0 } else { *v }).collect();
            let rows = gate.chunks(f as usize).zip(up.chunks(f as usize));
            let stacked: Vec<f32> = rows.flat_map(|(gate, up)| [gate, up].concat()).collect();
            let alternating: Vec<f32> = gate.iter().zip(&up).flat_map(|(gate, up)| [*gate, *up]).collect();
            for (lie, both) in [(Lie::Stacked, stacked), (Lie::Alternating, alternating)] {
                let (gate_up, y) = (filled(t, 2 * f, &both), poisoned(t, f));
                let outcome = run(gpu(), frame(0, t), |plan| kernels::swiglu::swiglu(plan, "y", &gate_up, lie, &y))
                    .and_then(|()| close("y", &read_guarded(&y, t), &ops::swiglu(&gate, &up), 1e-6, 1e-5));
                table.row(&format!("T {t} F {f}, {lie:?}"), outcome.map(drop));
            }
        }
    }
    table.finish();
}

/// A cache of random keys and values, [KV, context, D] each, and what it holds, as the reference takes it: [context, KV, D].
struct Cache {
    cache: KvCache,
    k: Vec<f32>,
    v: Vec<f32>,
}

fn room(gpu: &Gpu, context: u32, width: u32, format: KvFormat) -> KvCache {
    let buffer = || gpu.buffer("cache", format.bytes((context * width) as u64)).unwrap();
    KvCache { k: buffer(), v: buffer(), format, context }
}

/// The numbers that the keys or values of a cache hold: [context, KV, D].
fn read_cache(gpu: &Gpu, cache: &KvCache, buffer: &wgpu::Buffer, kv: u32, d: u32) -> Vec<f32> {
    let bytes = block_on(gpu.read(buffer, 0, buffer.size())).unwrap();
    let floats: Vec<f32> = match cache.format {
        KvFormat::F32 => bytemuck::pod_collect_to_vec(&bytes),
        KvFormat::F16 => bytes.chunks(2).map(|b| half::f16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        KvFormat::Q8_0 => bytes
            .chunks_exact(36)
            .flat_map(|block| {
                let scale = f32::from_le_bytes(block[32..].try_into().unwrap());
                block[..32].iter().map(move |&q| q as i8 as f32 * scale)
            })
            .collect(),
    };
    swapped(&floats, kv, cache.context, d)
}

/// The bytes of a cache that holds these numbers, nearly.
fn cache_bytes(floats: &[f32], format: KvFormat) -> Vec<u8> {
    match format {
        KvFormat::F32 => bytemuck::cast_slice(floats).to_vec(),
        KvFormat::F16 => floats.iter().flat_map(|v| half::f16::from_f32(*v).to_le_bytes()).collect(),
        KvFormat::Q8_0 => floats
            .chunks(32)
            .flat_map(|block| {
                let scale = block.iter().fold(0.0f32, |most, v| most.max(v.abs())) / 127.0;
                let quants = block.iter().map(move |v| (v / scale).round() as i8 as u8);
                quants.chain(scale.to_le_bytes()).collect::<Vec<_>>()
            })
            .collect(),
    }
}

fn random_cache(gpu: &Gpu, random: &mut Random, context: u32, kv: u32, d: u32, format: KvFormat) -> Cache {
    let cache = room(gpu, context, kv * d, format);
    let fill = |buffer: &wgpu::Buffer, random: &mut Random| {
        let floats = random.normals((context * kv * d) as usize, 1.0);
        gpu.upload(buffer, [&cache_bytes(&floats, format)[..]]).unwrap();
        read_cache(gpu, &cache, buffer, kv, d)
    };
    let (k, v) = (fill(&cache.k, random), fill(&cache.v, random));
    Cache { cache, k, v }
}

#[test]
fn rope_kv() {
    let mut table = Table::new("rope_kv");
    // (T, H, KV, D, rotated dims, base, position, magnitude)
    let shapes = [
        (1, 1, 1, 4, 4, 1e4, 0, 1.0),
        (3, 5, 1, 16, 16, 1e4, 7, 1.0),
        (33, 9, 3, 64, 64, 1e5, 1000, 1.0),
        (2, 3, 3, 80, 32, 5e5, 800, 1.2),
        (8, 2, 1, 128, 128, 1e6, 131, 0.8),
        (2, 2, 2, 20, 20, 1e4, 3, 1.0),
        (1, 2, 1, 256, 256, 1e4, 9, 1.0),
    ];
    for pairing in [Pairing::Neighbours, Pairing::Halves] {
        for (normed, format) in
            [(0, KvFormat::F32), (0, KvFormat::F16), (3, KvFormat::F32), (2, KvFormat::F16), (3, KvFormat::Q8_0)]
        {
            for (t, h, kv, d, dims, base, position, magnitude) in shapes {
                if format == KvFormat::Q8_0 && d % 32 != 0 {
                    continue; // refused by the session
                }
                let mut random = Random::new((d + normed) as u64);
                let factors = random.normals(dims / 2, 0.2);
                let inv_freq: Vec<f32> = (0..dims / 2)
                    .map(|i| (base as f32).powf(-2.0 * i as f32 / dims as f32) / (1.0 + factors[i].abs()))
                    .collect();
                let rope = Rope { dims, inv_freq, magnitude, pairing };
                let width = kv * d;
                let [q_floats, k_floats, v_floats] =
                    [h * d, width, width].map(|cols| random.normals((t * cols) as usize, 1.0));
                let gains = [0, 1].map(|_| random.normals(d as usize, 1.0));
                let rows = |all: &[f32], cols: u32, i: usize| all[i * cols as usize..(i + 1) * cols as usize].to_vec();
                let qkv: Vec<f32> = (0..t as usize)
                    .flat_map(|i| {
                        [rows(&q_floats, h * d, i), rows(&k_floats, width, i), rows(&v_floats, width, i)].concat()
                    })
                    .collect();
                let qkv = filled(t, (h + 2 * kv) * d, &qkv);
                let q = poisoned(t, h * d);
                let cache = room(gpu(), position + t + 2, width, format);
                let angles = Angles::upload(gpu(), &rope, position + t).unwrap();
                let positions: Vec<u32> = (position..position + t).collect();
                let turned = |x: &[f32], heads: u32, gain: Option<&[f32]>| {
                    let x = gain.map_or(x.to_vec(), |gain| ops::rms_norm(x, gain, 1e-6));
                    ops::rope(&x, &positions, heads as usize, d as usize, &rope)
                };
                let gain_of = |bit: u32, gain: &Vec<f32>| (normed & bit != 0).then(|| gain.clone());
                let (q_gain, k_gain) = (gain_of(1, &gains[0]), gain_of(2, &gains[1]));
                let (q_vector, k_vector) = (q_gain.as_deref().map(vector), k_gain.as_deref().map(vector));
                let norms = HeadNorms { q: q_vector.as_ref(), k: k_vector.as_ref(), eps: 1e-6 };
                let outcome = run(gpu(), frame(position, t), |plan| {
                    kernels::rope_kv::rope_kv(plan, "q", &qkv, &angles, norms, kv, &q, &cache)
                })
                .and_then(|()| {
                    let want_k = turned(&k_floats, kv, k_gain.as_deref());
                    let most = want_k.iter().chain(&v_floats).fold(0.0f32, |most, v| most.max(v.abs()));
                    let (abs, rel) = match format {
                        KvFormat::F32 => (1e-5, 1e-5),
                        KvFormat::F16 => (1e-6, 2e-3),
                        KvFormat::Q8_0 => (most * (0.502 / 127.0), 0.0), // half a step
                    };
                    close("q", &read_guarded(&q, t), &turned(&q_floats, h, q_gain.as_deref()), 1e-5, 1e-5)?;
                    let stored = |buffer| -> Vec<f32> {
                        let first = (position * width) as usize;
                        read_cache(gpu(), &cache, buffer, kv, d)[first..first + (t * width) as usize].to_vec()
                    };
                    close("k", &stored(&cache.k), &want_k, abs, rel)?;
                    close("v", &stored(&cache.v), &v_floats, abs, rel)?;
                    let mut others = read_cache(gpu(), &cache, &cache.k, kv, d);
                    others.drain((position * width) as usize..((position + t) * width) as usize);
                    if others.iter().any(|v| *v != 0.0) { Err("other keys were written".into()) } else { Ok(()) }
                });
                let row = format!("{pairing:?} {format:?} T {t} H {h} KV {kv} D {d} dims {dims} norms {normed}");
                table.row(&row, outcome);
            }
        }
    }
    table.finish();
}

#[test]
fn rope_kv_keeps_a_nan() {
    // where a cache is of bytes: in the scale, of the block where it stood and of no other
    let (kv, d) = (1, 64);
    let mut qkv_floats = Random::new(1).normals((3 * d) as usize, 1.0);
    let [key, value] = [d + 35, 2 * d + 3];
    qkv_floats[key as usize] = f32::NAN;
    qkv_floats[value as usize] = f32::NAN;
    let (qkv, q, cache) = (filled(1, 3 * d, &qkv_floats), poisoned(1, d), room(gpu(), 1, d, KvFormat::Q8_0));
    let rope = Rope { dims: 0, inv_freq: vec![0.0], magnitude: 1.0, pairing: Pairing::Neighbours };
    let angles = Angles::upload(gpu(), &rope, 1).unwrap();
    let norms = HeadNorms { q: None, k: None, eps: 0.0 };
    run(gpu(), frame(0, 1), |plan| kernels::rope_kv::rope_kv(plan, "q", &qkv, &angles, norms, kv, &q, &cache)).unwrap();
    for (buffer, at) in [(&cache.k, 35), (&cache.v, 3)] {
        for (i, v) in read_cache(gpu(), &cache, buffer, kv, d).iter().enumerate() {
            assert_eq!(v.is_nan(), i / 32 == at / 32, "channel {i} is {v}, the NaN stood in {at}");
        }
    }
}

#[test]
fn attention() {
    let mut table = Table::new("attention");
    // (T, H, KV, D, position, keys of a split, 0: as the device likes): one key, groups of 1 to 7, head sizes around the vector and the
    // maximum, several tiles of keys, several splits of which the last may be all but empty
    let shapes = [
        (1, 1, 1, 4, 0, 0),
        (1, 9, 3, 64, 0, 0),
        (1, 4, 2, 32, 63, 0),
        (1, 4, 1, 128, 64, 0),
        (1, 3, 3, 80, 201, 0),
        (1, 7, 1, 32, 40, 0),
        (5, 4, 2, 20, 0, 0),
        (33, 6, 2, 64, 50, 0),
        (3, 2, 1, 256, 130, 0),
        (1, 9, 3, 64, 300, 64),
        (1, 4, 2, 80, 128, 128),
        (1, 2, 1, 128, 127, 128),
        (5, 6, 2, 32, 126, 64),
        (9, 7, 1, 32, 31, 0),
        (16, 16, 1, 32, 0, 0),
        (37, 3, 3, 20, 5, 0),
        (40, 4, 2, 80, 30, 0),
        (17, 2, 1, 256, 100, 64),
        (70, 2, 2, 128, 60, 64),
        (3, 5, 1, 64, 510, 0),
        (4, 6, 3, 64, 30, 32),
        (2, 2, 1, 128, 62, 64),
        (1, 7, 7, 64, 1757, 0),
    ];
    for (profile, gpu) in profiles() {
        for format in [KvFormat::F32, KvFormat::F16, KvFormat::Q8_0] {
            for (t, h, kv, d, position, split) in shapes {
                if format == KvFormat::Q8_0 && d % 32 != 0 {
                    continue; // refused by the session
                }
                let context = position + t + 3; // keys after the last are not to be seen
                let mut random = Random::new((t * h * d + position) as u64);
                let cache = random_cache(&gpu, &mut random, context, kv, d, format);
                let q_floats = random.normals((t * h * d) as usize, 1.0);
                let (q, y) = (filled(t, h * d, &q_floats), poisoned(t, h * d));
                let splits = match split {
                    0 => Splits::new(&gpu, t, context, h, d).unwrap(),
                    keys => Splits::of(&gpu, t, context, h, d, keys).unwrap(),
                };
                let sizes = (h as usize, kv as usize, d as usize);
                let want = ops::attention(&q_floats, &cache.k, &cache.v, position as usize, sizes.0, sizes.1, sizes.2);
                let outcome = run(&gpu, frame(position, t), |plan| {
                    kernels::attention::attention(plan, "y", &q, &cache.cache, kv, d, &splits, &y, None)
                })
                .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-5, 1e-5))
                .and_then(|_| {
                    // the same, in bytes
                    let floats = Tensor::new(&gpu, "floats", t, h * d).unwrap();
                    let bytes = Tensor::of(&gpu, "bytes", t, h * d, Element::Bytes).unwrap();
                    run(&gpu, frame(position, t), |plan| {
                        let (cache, bytes) = (&cache.cache, Some(&bytes));
                        kernels::attention::attention(plan, "y", &q, cache, kv, d, &splits, &floats, bytes)
                    })?;
                    in_steps(&bytes, &want)
                });
                table.row(
                    &format!("{format:?} T {t} H {h} KV {kv} D {d} position {position} split {split}, {profile}"),
                    outcome,
                );
            }
        }
    }
    table.finish();
}

#[test]
fn softmax() {
    let mut table = Table::new("softmax");
    for (row, gpu, t, n) in sizes() {
        let mut random = Random::new((t + n) as u64);
        let x_floats = random.normals((t * n) as usize, 20.0);
        let (x, y) = (filled(t, n, &x_floats), poisoned(t, n));
        let want = ops::softmax(&x_floats, n as usize);
        let outcome = run(&gpu, frame(0, t), |plan| kernels::softmax::softmax(plan, "y", &x, &y))
            .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-6, 2e-5));
        table.row(&row, outcome.map(drop));
    }
    table.finish();
}

/// A plan of one choice, over logits that lie in a poisoned row.
struct Choice {
    plan: Plan,
    sample: Sample,
    logits: Tensor,
    ids: wgpu::Buffer,
}

impl Choice {
    fn new(gpu: &Gpu, vocab: u32) -> Choice {
        let (logits, sample) = (poisoned(1, vocab), Sample::new(gpu, vocab, 64).unwrap());
        let mut plan = PlanBuilder::new(gpu, 1);
        let ids = gpu.buffer("ids", 16).unwrap();
        kernels::sample::sample(&mut plan, "sample", &logits, &sample, &ids).unwrap();
        Choice { plan: plan.finish("sample").unwrap(), sample, logits, ids }
    }

    fn begin(&self, sampler: &Sampler, tokens: &[u32]) {
        let marks = Mark::all(sampler, tokens, self.logits.cols).unwrap();
        gpu().queue().write_buffer(&self.sample.marks, 0, bytemuck::cast_slice(&marks));
        gpu().queue().write_buffer(&self.sample.history, 0, bytemuck::cast_slice(tokens));
    }

    /// Of the token at `position`. All that the kernel must write is poisoned before.
    fn choose(&self, logits: &[f32], settings: Settings, position: u32) -> Result<Chosen, String> {
        let poison = [POISON; 4];
        for buffer in [&self.sample.chosen.buffer, &self.ids] {
            gpu().queue().write_buffer(buffer, 0, bytemuck::cast_slice(&poison));
        }
        for step in &self.plan.steps {
            let output = &step.output; // the peaks, and the pool behind them
            let floats = vec![POISON; output.stride() as usize];
            gpu().queue().write_buffer(&output.buffer, 0, bytemuck::cast_slice(&floats));
        }
        gpu().queue().write_buffer(&self.logits.buffer, 0, bytemuck::cast_slice(logits));
        gpu().queue().write_buffer(&self.sample.settings, 0, bytemuck::bytes_of(&settings));
        let mut encoder = gpu().device().create_command_encoder(&Default::default());
        self.plan.record(&mut encoder, frame(position, 1));
        gpu().queue().submit([encoder.finish()]);
        let read = |buffer: &wgpu::Buffer| block_on(gpu().read(buffer, 0, 16)).unwrap();
        let (chosen, ids) = (read(&self.sample.chosen.buffer), read(&self.ids));
        let poison: &[u8] = bytemuck::cast_slice(&poison);
        if chosen[12..] != poison[12..] || ids[4..] != poison[4..] || ids[..4] != chosen[..4] {
            return Err(format!("chosen {chosen:?}, ids {ids:?}"));
        }
        Ok(Chosen::read(&chosen))
    }
}

/// The GPU's choices against the CPU sampler's: several in turn, so that the penalties' bookkeeping is seen too.
#[test]
fn sample_chooses_as_the_sampler_does() {
    let usual = || Sampling { seed: Some(3), ..Sampling::default() };
    let open = || Sampling { temperature: 1.5, top_p: 1.0, min_p: 0.0, ..usual() };
    let penalties =
        || Sampling { repeat_penalty: 1.3, repeat_last_n: 5, frequency_penalty: 0.4, presence_penalty: 0.3, ..open() };
    let mut samplings = vec![
        ("greedy", Sampling::greedy()),
        ("greedy with penalties", Sampling { temperature: 0.0, ..penalties() }),
        ("greedy, some barred", Sampling { barred: vec![0, 2], ..Sampling::greedy() }),
        ("usual", usual()),
        ("top_p 0", Sampling { top_p: 0.0, ..usual() }),
        ("top_p 0.5", Sampling { top_p: 0.5, min_p: 0.0, ..usual() }),
        ("min_p 0.5", Sampling { top_p: 1.0, min_p: 0.5, ..usual() }),
        ("cold", Sampling { temperature: 1e-3, ..usual() }),
        ("penalties", penalties()),
        ("repeat_last_n reached on the way", Sampling { repeat_last_n: 8, ..penalties() }),
        ("no repeat_last_n", Sampling { repeat_last_n: 0, ..penalties() }),
        ("all of the sequence", Sampling { repeat_last_n: u32::MAX, ..penalties() }),
        ("penalties that are huge", Sampling { repeat_penalty: 1e38, presence_penalty: -3e38, ..penalties() }),
        ("some barred", Sampling { barred: vec![2, 0], top_k: 256, ..penalties() }),
    ];
    samplings.extend([1, 2, 40, 256].map(|top_k| ("open", Sampling { top_k, ..open() })));
    let mut table = Table::new("sample");
    for (profile, gpu) in profiles() {
        for vocab in [1, 3, 257, 1757, 49_152] {
            let choice = Choice::new(&gpu, vocab);
            let mut random = Random::new(vocab as u64);
            let id = |i: u32| if i % 1024 == 5 { 3.0 } else { 0.0 };
            let kinds: [(&str, Vec<f32>); 4] = [
                ("normal", random.normals(vocab as usize, 3.0)),
                ("ties", (0..vocab).map(|_| random.below(50) as f32 / 4.0 - 6.0).collect()),
                ("all equal", vec![-0.0; vocab as usize]),
                ("the best in one group", (0..vocab).map(id).collect()),
            ];
            for (kind, logits) in kinds {
                for (name, sampling) in &samplings {
                    if sampling.barred.len() as u32 >= vocab {
                        continue; // ids that are not there
                    }
                    let mut run = || {
                        let mut tokens = random.ids(6, vocab);
                        let mut sampler = Sampler::new(sampling.clone()).unwrap();
                        let mut on_gpu = sampler.clone();
                        choice.begin(&sampler, &tokens);
                        for _ in 0..8 {
                            let want = sampler.pick(&mut logits.clone(), &tokens).map_err(|e| e.to_string())?;
                            let settings = Settings { random: on_gpu.random() as f32, ..Settings::of(sampling, vocab) };
                            let got = choice.choose(&logits, settings, tokens.len() as u32)?;
                            if got != Chosen::Id(want) {
                                return Err(format!("token {}: got {got:?}, expected {want}", tokens.len()));
                            }
                            tokens.push(want);
                        }
                        let marks = block_on(gpu.read(&choice.sample.marks, 0, vocab as u64 * 8)).unwrap();
                        let marks: Vec<Mark> = bytemuck::pod_collect_to_vec(&marks);
                        let mut want = Mark::all(&sampler, &tokens, vocab).unwrap();
                        if Settings::of(sampling, vocab).penalized == 0 {
                            want = Mark::all(&on_gpu, &tokens[..6], vocab).unwrap();
                        }
                        if marks == want { Ok(()) } else { Err("the marks differ".into()) }
                    };
                    table.row(&format!("{name}, k {}, {kind}, V {vocab}, {profile}", sampling.top_k), run());
                }
            }
        }
    }
    table.finish();
}

#[test]
fn sample_tells_why_there_is_no_choice() {
    let mut table = Table::new("no choice");
    let choice = Choice::new(gpu(), 1500);
    let usual = || Sampling { seed: Some(3), ..Sampling::default() };
    for (name, at, value) in [
        ("none", 0, 1.0),
        ("NaN first", 0, f32::NAN),
        ("NaN", 700, -f32::NAN),
        ("inf last", 1499, f32::INFINITY),
        ("-inf", 65, f32::NEG_INFINITY),
    ] {
        let mut logits = Random::new(1).normals(1500, 1.0);
        logits[at] = value;
        // a barred token is looked at too
        for sampling in [Sampling::greedy(), usual(), Sampling { barred: vec![0, 700], ..usual() }] {
            choice.begin(&Sampler::new(sampling.clone()).unwrap(), &[1]);
            let outcome = choice.choose(&logits, Settings::of(&sampling, 1500), 1).and_then(|got| match got {
                Chosen::Id(_) if value.is_finite() => Ok(()),
                Chosen::NotFinite { id, value: told } if id == at as u32 && told.to_bits() == value.to_bits() => Ok(()),
                got => Err(format!("{got:?}")),
            });
            table.row(name, outcome);
        }
    }
    let barred = Sampling { barred: (0..1500).collect(), ..usual() };
    choice.begin(&Sampler::new(barred.clone()).unwrap(), &[1]);
    let got = choice.choose(&[0.0; 1500], Settings::of(&barred, 1500), 1);
    table.row("all barred", if got == Ok(Chosen::AllBarred) { Ok(()) } else { Err(format!("{got:?}")) });
    table.finish();
}

#[test]
fn grids_beyond_65535_workgroups_are_folded() {
    // 4 rows a workgroup: 262,148 rows need 65,537 of them
    let (n, k) = (262_148, 1);
    let grouped = gpu().with_profile(peregrine::Profile {
        lanes: false,
        subgroups: false,
        eights: false,
        int8: false,
        matrix: None,
        chunk: 512,
    });
    let w_floats: Vec<f32> = (0..n).map(|i| (i % 1009) as f32).collect();
    let w =
        peregrine::weight::Weight::upload(&grouped, "w", Format::F32, n, k, bytemuck::cast_slice(&w_floats)).unwrap();
    let (x, y) = (filled(1, 1, &[2.0]), poisoned(1, n));
    run(&grouped, frame(0, 1), |plan| {
        linear_with(plan, "y", Linear::Matvec(1), &x, Input::Plain, &w, None, Rows::All, Finish::Store(&y))
    })
    .unwrap();
    let want: Vec<f32> = w_floats.iter().map(|w| w * 2.0).collect();
    common::assert_close("y", &read_guarded(&y, 1), &want, 0.0, 0.0);
}

/// The blocks of tests/data/formats.json: subnormal, negative and largest scales, every pattern of the quants.
#[test]
fn decode_of_extreme_scales() {
    let reference = common::json("formats.json").expect("a file of ours");
    let mut table = Table::new("extreme scales");
    for format in Format::ALL {
        let hex = reference[format.name()]["bytes"].as_str().unwrap();
        let bytes: Vec<u8> =
            (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect();
        let cols = format.block_weights().max(32) as u32;
        let rows = (bytes.len() / format.block_bytes() * format.block_weights()) as u32 / cols;
        let mut want = vec![0.0; (rows * cols) as usize];
        format.decode(&bytes, &mut want);
        let w = peregrine::weight::Weight::upload(gpu(), format.name(), format, rows, cols, &bytes).unwrap();
        let ids: Vec<u32> = (0..rows).collect();
        let (ids_buffer, y) = (upload_ids(&ids), poisoned(rows, cols));
        // arithmetic may flush subnormals, so that these may be zero
        let outcome = run(gpu(), frame(0, rows), |plan| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y))
            .and_then(|()| close("y", &read_guarded(&y, rows), &want, f32::MIN_POSITIVE, 1e-6));
        table.row(format.name(), outcome.map(drop));
    }
    table.finish();
}
