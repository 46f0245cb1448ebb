//! Every kernel against its CPU reference, over awkward sizes, on random data, into poisoned outputs, under every
//! profile of the device. A failing row names kernel, profile and size.

mod common;

use common::gpu::*;
use common::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::kv_store::KvCache;
use peregrine::kernels::linear::{Linear, linear_with};
use peregrine::kernels::rms_norm::Rows;
use peregrine::kernels::rope::Angles;
use peregrine::kernels::top_k::TopK;
use peregrine::kernels::{self, KvFormat};
use peregrine::model::{Pairing, Rope};
use peregrine::plan::{Frame, PlanBuilder};
use peregrine::reference::ops;
use peregrine::tensor::Tensor;
use peregrine::weight::Vector;
use peregrine::{Error, Gpu, block_on, wgpu};

/// Row lengths: 1, odd, prime, whole blocks, several workgroups.
const COLS: [u32; 7] = [1, 3, 31, 64, 97, 576, 1757];
/// Tokens of a pass: one, odd, a whole tile and one more.
const TOKENS: [u32; 4] = [1, 3, 8, 33];

/// Builds a plan of the steps that `build` adds and runs one pass.
fn run(gpu: &Gpu, frame: Frame, build: impl FnOnce(&mut PlanBuilder) -> Result<(), Error>) -> Result<(), String> {
    let mut plan = PlanBuilder::new(gpu, frame.tokens);
    build(&mut plan).map_err(|e| e.to_string())?;
    let plan = plan.finish("test").map_err(|e| e.to_string())?;
    let mut encoder = gpu.device().create_command_encoder(&Default::default());
    plan.record(&mut encoder, frame);
    gpu.queue().submit([encoder.finish()]);
    gpu.wait().map_err(|e| e.to_string())
}

fn frame(position: u32, tokens: u32) -> Frame {
    Frame { position, tokens }
}

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

#[test]
fn linear() {
    let mut table = Table::new("linear");
    // (T, N, K): one row, odd rows, more than a workgroup's rows, K of one block and of several super-blocks
    let shapes = [(1, 1, 256), (1, 65, 256), (2, 37, 512), (1, 131, 768), (9, 65, 256), (33, 70, 512), (8, 64, 256)];
    let odd = [(1, 5, 1), (3, 33, 97), (1, 172, 64), (33, 64, 172), (9, 1757, 33), (1, 3, 1757)]; // plain formats only
    for (profile, gpu) in profiles() {
        for format in Format::ALL {
            let shapes = shapes.iter().chain(if format.block_weights() == 1 { &odd[..] } else { &[] });
            for &(t, n, k) in shapes {
                let mut random = Random::new((t * 7919 + n * 31 + k) as u64);
                let (w, w_floats) = random_weight(&gpu, format, &mut random, n, k);
                let x_floats = random.normals((t * k) as usize, 1.0);
                let x = filled(t, k, &x_floats);
                let want = ops::matmul(&x_floats, &w_floats, t as usize, k as usize, n as usize);
                for kernel in Linear::ALL {
                    let y = poisoned(t, n);
                    let outcome = run(&gpu, frame(0, t), |plan| linear_with(plan, "y", kernel, &x, &w, Rows::All, &y))
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

#[test]
fn linear_over_shards() {
    let mut table = Table::new("linear over shards");
    for format in [Format::Q8_0, Format::F32, Format::Q6_K] {
        let (t, n, k) = (3, 50, 256);
        let small =
            gpu().with_max_binding(20 * (k as u64 / format.block_weights() as u64 * format.block_bytes() as u64));
        let mut random = Random::new(5);
        let (w, w_floats) = random_weight(&small, format, &mut random, n, k);
        assert!(w.shards.len() > 2, "{} was not split", format.name());
        let x_floats = random.normals((t * k) as usize, 1.0);
        let (x, y) = (filled(t, k, &x_floats), poisoned(t, n));
        let want = ops::matmul(&x_floats, &w_floats, t as usize, k as usize, n as usize);
        let outcome = run(&small, frame(0, t), |plan| kernels::linear::linear(plan, "y", &x, &w, Rows::All, &y))
            .and_then(|()| close("y", &read_guarded(&y, t), &want, 1e-3, 1e-5));
        table.row(&format!("linear {}", format.name()), outcome.map(drop));

        let ids = random.ids(t as usize, n);
        let (ids_buffer, y) = (upload_ids(&ids), poisoned(t, k));
        let want = ops::embed(&w_floats, &ids, k as usize);
        let outcome = run(&small, frame(0, t), |plan| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y))
            .and_then(|()| close("y", &read_guarded(&y, t), &want, 0.0, 1e-6));
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
                .and_then(|()| close("y", &read_guarded(&y, t), &want, 0.0, 1e-6));
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
fn elementwise() {
    let mut table = Table::new("add, add_bias, swiglu");
    for t in TOKENS {
        for c in COLS {
            let n = (t * c) as usize;
            let mut random = Random::new((t * 1000 + c) as u64);
            let (a, b, bias) = (random.normals(n, 1.0), random.normals(n, 1.0), random.normals(c as usize, 1.0));
            let (x, y) = (filled(t, c, &a), filled(t, c, &b));
            let outcome = run(gpu(), frame(0, t), |plan| kernels::add::add(plan, "y", &x, &y))
                .and_then(|()| close("y", &read_guarded(&y, t), &ops::add(&a, &b), 0.0, 1e-6));
            table.row(&format!("add T {t} C {c}"), outcome.map(drop));

            let y = filled(t, c, &b);
            let outcome = run(gpu(), frame(0, t), |plan| kernels::add_bias::add_bias(plan, "y", &vector(&bias), &y))
                .and_then(|()| close("y", &read_guarded(&y, t), &ops::add_bias(&b, &bias), 0.0, 1e-6));
            table.row(&format!("add_bias T {t} C {c}"), outcome.map(drop));

            // gates far below zero, where exp(-g) leaves f32
            let gate: Vec<f32> = a.iter().enumerate().map(|(i, v)| if i % 5 == 0 { v * 100.0 } else { *v }).collect();
            let (g, u, y) = (filled(t, c, &gate), filled(t, c, &b), poisoned(t, c));
            let outcome = run(gpu(), frame(0, t), |plan| kernels::swiglu::swiglu(plan, "y", &g, &u, &y))
                .and_then(|()| close("y", &read_guarded(&y, t), &ops::swiglu(&gate, &b), 1e-6, 1e-5));
            table.row(&format!("swiglu T {t} F {c}"), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn rope() {
    let mut table = Table::new("rope");
    for pairing in [Pairing::Neighbours, Pairing::Halves] {
        // (T, heads, D, rotated dims, base, position, magnitude)
        for (t, h, d, dims, base, position, magnitude) in [
            (1, 1, 4, 4, 1e4, 0, 1.0),
            (3, 5, 16, 16, 1e4, 7, 1.0),
            (33, 9, 64, 64, 1e5, 1000, 1.0),
            (2, 3, 80, 32, 5e5, 8000, 1.2),
            (8, 2, 128, 128, 1e6, 131, 0.8),
        ] {
            let mut random = Random::new(d as u64);
            let factors = random.normals(dims / 2, 0.2);
            let inv_freq: Vec<f32> = (0..dims / 2)
                .map(|i| (base as f32).powf(-2.0 * i as f32 / dims as f32) / (1.0 + factors[i].abs()))
                .collect();
            let rope = Rope { dims, inv_freq, magnitude, pairing };
            let x_floats = random.normals((t * h * d) as usize, 1.0);
            let x = filled(t, h * d, &x_floats);
            let angles = Angles::upload(gpu(), &rope, position + t).unwrap();
            let positions: Vec<u32> = (position..position + t).collect();
            let want = ops::rope(&x_floats, &positions, h as usize, d as usize, &rope);
            let outcome = run(gpu(), frame(position, t), |plan| kernels::rope::rope(plan, "x", &angles, d, &x))
                .and_then(|()| close("x", &read_guarded(&x, t), &want, 1e-6, 1e-5));
            table.row(&format!("{pairing:?} T {t} H {h} D {d} dims {dims} position {position}"), outcome.map(drop));
        }
    }
    table.finish();
}

#[test]
fn attention_and_kv_store() {
    let mut table = Table::new("attention and kv_store");
    // (T, H, KV, D, position): one key, groups of 1 to 4, head sizes around the vector and the maximum, several key tiles
    let shapes = [
        (1, 1, 1, 4, 0),
        (1, 9, 3, 64, 0),
        (1, 4, 2, 32, 63),
        (1, 4, 1, 128, 64),
        (1, 3, 3, 80, 201),
        (5, 4, 2, 20, 0),
        (33, 6, 2, 64, 50),
        (3, 2, 1, 256, 130),
    ];
    for (profile, gpu) in profiles() {
        // pack2x16float may round either way, so f16 keys differ by an ulp from those of the reference
        for (format, abs, rel) in [(KvFormat::F32, 1e-5, 1e-5), (KvFormat::F16, 2e-3, 1e-3)] {
            for (t, h, kv, d, position) in shapes {
                let context = position + t;
                let width = kv * d;
                let mut random = Random::new((t * h * d + position) as u64);
                let k_all = random.normals((context * width) as usize, 1.0);
                let v_all = random.normals((context * width) as usize, 1.0);
                let q_floats = random.normals((t * h * d) as usize, 1.0);
                let cache = || gpu.buffer("cache", (context * width * format.bytes()) as u64).unwrap();
                let cache = KvCache { k: cache(), v: cache(), format };
                // earlier positions through one store, those of this pass through another
                for (start, rows) in [(0, position), (position, t)] {
                    if rows == 0 {
                        continue;
                    }
                    let part = |all: &[f32]| {
                        filled(rows, width, &all[(start * width) as usize..((start + rows) * width) as usize])
                    };
                    let (k, v) = (part(&k_all), part(&v_all));
                    run(&gpu, frame(start, rows), |plan| kernels::kv_store::kv_store(plan, "kv", &k, &v, &cache))
                        .unwrap();
                }
                let (q, y) = (filled(t, h * d, &q_floats), poisoned(t, h * d));
                let rounded = |all: &[f32]| -> Vec<f32> {
                    match format {
                        KvFormat::F32 => all.to_vec(),
                        KvFormat::F16 => all.iter().map(|&v| half::f16::from_f32(v).to_f32()).collect(),
                    }
                };
                let (k_cache, v_cache) = (rounded(&k_all), rounded(&v_all));
                let want = ops::attention(
                    &q_floats,
                    &k_cache,
                    &v_cache,
                    position as usize,
                    h as usize,
                    kv as usize,
                    d as usize,
                );
                let outcome = run(&gpu, frame(position, t), |plan| {
                    kernels::attention::attention(plan, "y", &q, &cache, kv, d, &y)
                })
                .and_then(|()| close("y", &read_guarded(&y, t), &want, abs, rel));
                table.row(
                    &format!("{format:?} T {t} H {h} KV {kv} D {d} position {position}, {profile}"),
                    outcome.map(drop),
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

#[test]
fn top_k_and_argmax() {
    let mut table = Table::new("top_k");
    for t in TOKENS {
        for n in COLS {
            for k in [1, 2, 40].map(|k: u32| k.min(n)) {
                let mut random = Random::new((t * n + k) as u64);
                // few distinct values, so that ties abound
                let x_floats: Vec<f32> = (0..t * n).map(|_| random.below(50) as f32 - 25.0).collect();
                let x = filled(t, n, &x_floats);
                let found = TopK::new(gpu(), t, k).unwrap();
                let outcome =
                    run(gpu(), frame(0, t), |plan| kernels::top_k::top_k(plan, "best", &x, Rows::All, &found));
                let got = outcome.and_then(|()| {
                    let pairs: Vec<u32> = bits(&block_on(found.best.read(gpu(), t)).unwrap());
                    let got: Vec<(u32, f32)> = pairs.chunks(2).map(|p| (p[0], f32::from_bits(p[1]))).collect();
                    let want: Vec<(u32, f32)> = x_floats
                        .chunks(n as usize)
                        .flat_map(|row| {
                            let (ids, values) = ops::top_k(row, k as usize);
                            ids.into_iter().zip(values).collect::<Vec<_>>()
                        })
                        .collect();
                    if got == want { Ok(()) } else { Err(format!("got {got:?}, expected {want:?}")) }
                });
                table.row(&format!("T {t} N {n} k {k}"), got);
            }
        }
    }
    table.finish();
}

#[test]
fn top_k_tells_of_values_that_are_not_finite() {
    let mut table = Table::new("not finite");
    for (name, at, value) in [
        ("none", 0, 1.0),
        ("NaN first", 0, f32::NAN),
        ("NaN", 700, f32::NAN),
        ("inf last", 999, f32::INFINITY),
        ("-inf", 65, f32::NEG_INFINITY),
    ] {
        let mut x_floats = Random::new(1).normals(1000, 1.0);
        x_floats[at] = value;
        let x = filled(1, 1000, &x_floats);
        let found = TopK::new(gpu(), 1, 1).unwrap();
        let outcome = run(gpu(), frame(0, 1), |plan| kernels::top_k::top_k(plan, "best", &x, Rows::All, &found))
            .and_then(|()| {
                let broken = u32::from_le_bytes(block_on(gpu().read(&found.broken, 0, 4)).unwrap().try_into().unwrap());
                let want = if value.is_finite() { 0 } else { at as u32 + 1 };
                if broken == want { Ok(()) } else { Err(format!("says {broken}, expected {want}")) }
            });
        table.row(name, outcome);
    }
    table.finish();
}

fn bits(floats: &[f32]) -> Vec<u32> {
    floats.iter().map(|f| f.to_bits()).collect()
}

#[test]
fn grids_beyond_65535_workgroups_are_folded() {
    // 4 rows a workgroup: 262,148 rows need 65,537 of them
    let (n, k) = (262_148, 1);
    let grouped = gpu().with_profile(peregrine::Profile { lanes: false, subgroups: false });
    let w_floats: Vec<f32> = (0..n).map(|i| (i % 1009) as f32).collect();
    let w =
        peregrine::weight::Weight::upload(&grouped, "w", Format::F32, n, k, bytemuck::cast_slice(&w_floats)).unwrap();
    let (x, y) = (filled(1, 1, &[2.0]), poisoned(1, n));
    run(&grouped, frame(0, 1), |plan| linear_with(plan, "y", Linear::Matvec, &x, &w, Rows::All, &y)).unwrap();
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
        let outcome = run(gpu(), frame(0, rows), |plan| kernels::embed::embed(plan, "y", &w, &ids_buffer, &y))
            .and_then(|()| close("y", &read_guarded(&y, rows), &want, 0.0, 1e-6));
        table.row(format.name(), outcome.map(drop));
    }
    table.finish();
}
