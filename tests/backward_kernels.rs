//! Every backward kernel against its CPU reference, as tests/kernels.rs does it for the forward ones.

mod common;

use common::gpu::*;
use common::{Random, Table, close};
use peregrine::formats::Format;
use peregrine::kernels::matmul_dx::{Gradient, matmul_dx};
use peregrine::reference::{backward, ops};
use peregrine::weight::{Source, Weight};

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
    let sources: Vec<Source> =
        formats.iter().zip(&bytes).zip(rows).map(|((&format, data), rows)| Source { format, rows, data }).collect();
    let dy_floats = random.normals(t as usize * 108, 1.0);
    let want = backward::matmul_dx(&dy_floats, &floats.concat(), t as usize, k as usize, 108);
    for (profile, gpu) in profiles() {
        let w = Weight::stacked(&gpu, "w", k, &sources).unwrap();
        assert_eq!(w.parts.len(), 3);
        let (dy, dx) = (filled(t, 108, &dy_floats), poisoned(t, k));
        let outcome = run(&gpu, frame(0, t), |plan| matmul_dx(plan, "dx", &dy, &w, &dx, Gradient::Store))
            .and_then(|()| close("dx", &read_guarded(&dx, t), &want, 1e-4, 1e-5));
        table.row(&profile, outcome.map(drop));
    }
    table.finish();
}
