//! The backward ops of the reference, and whole models made of them, against differences: each gradient must tell how a random weighing of the results
//! changes with every input, in f64, where a difference is exact to some nine digits.

mod common;

use common::tiny::TinyModel;
use common::{Random, Table};
use peregrine::formats::Format;
use peregrine::model::{Architecture, Pairing, Rope};
use peregrine::reference::{ReferenceModel, backward, ops};
use peregrine::train::{IGNORED, Sequence};

/// Inputs and gradients of an op, each flat.
type Tensors = Vec<Vec<f64>>;

fn normals(random: &mut Random, n: usize) -> Vec<f64> {
    random.normals(n, 1.0).into_iter().map(f64::from).collect()
}

/// `op(inputs)` weighed with random `dy` against `gradients(inputs, dy)`, one gradient for each input. All of them, up to
/// 200 elements of each; no gradient may vanish as a whole.
fn check(
    inputs: Tensors,
    op: impl Fn(&Tensors) -> Vec<f64>,
    gradients: impl Fn(&Tensors, &[f64]) -> Tensors,
) -> Result<(), String> {
    let mut random = Random::new(7);
    let dy = normals(&mut random, op(&inputs).len());
    let loss = |inputs: &Tensors| -> f64 { op(inputs).iter().zip(&dy).map(|(y, dy)| y * dy).sum() };
    let gradients = gradients(&inputs, &dy);
    assert_eq!(gradients.len(), inputs.len());
    for (n, gradient) in gradients.iter().enumerate() {
        let all = gradient.len();
        if all != inputs[n].len() {
            return Err(format!("input {n} has {} elements, its gradient {all}", inputs[n].len()));
        }
        if gradient.iter().all(|g| *g == 0.0) {
            return Err(format!("the gradient of input {n} is zero throughout"));
        }
        let size = gradient.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        let step = 1e-5;
        for i in (0..all).step_by(all.div_ceil(200)) {
            let moved = |by: f64| {
                let mut inputs = inputs.clone();
                inputs[n][i] += by;
                loss(&inputs)
            };
            let want = (moved(step) - moved(-step)) / (2.0 * step);
            if (gradient[i] - want).abs() > 1e-7 * size.max(want.abs()) {
                return Err(format!("input {n}, element {i}: {} where differences give {want}", gradient[i]));
            }
        }
    }
    Ok(())
}

#[test]
fn matmul() {
    let mut table = Table::new("matmul_dx, matmul_dw, add_bias_backward");
    for (t, k, n) in [(1, 1, 1), (3, 5, 7), (4, 33, 2)] {
        let mut random = Random::new((t * k * n) as u64);
        let inputs = vec![normals(&mut random, t * k), normals(&mut random, n * k), normals(&mut random, n)];
        let outcome = check(
            inputs,
            |i| ops::add_bias(&ops::matmul(&i[0], &i[1], t, k, n), &i[2]),
            |i, dy| {
                let dx = backward::matmul_dx(dy, &i[1], t, k, n);
                vec![dx, backward::matmul_dw(dy, &i[0], t, k, n), backward::add_bias_backward(dy, n)]
            },
        );
        table.row(&format!("T {t} K {k} N {n}"), outcome);
    }
    table.finish();
}

#[test]
fn embed() {
    let (v, c) = (5, 3);
    let ids = [4, 0, 4, 2]; // one twice, some never
    let outcome = check(
        vec![normals(&mut Random::new(1), v * c)],
        |i| ops::embed(&i[0], &ids, c),
        |_, dy| vec![backward::embed_backward(dy, &ids, v, c)],
    );
    assert_eq!(outcome, Ok(()));
}

#[test]
fn rms_norm() {
    let mut table = Table::new("rms_norm_backward");
    for (t, c, eps) in [(1, 2, 1e-5), (3, 7, 1e-6), (5, 64, 0.5)] {
        let mut random = Random::new((t * c) as u64);
        let outcome = check(
            vec![normals(&mut random, t * c), normals(&mut random, c)],
            |i| ops::rms_norm(&i[0], &i[1], eps),
            |i, dy| {
                let (dx, dgain) = backward::rms_norm_backward(&i[0], &i[1], eps, dy);
                vec![dx, dgain]
            },
        );
        table.row(&format!("T {t} C {c} eps {eps}"), outcome);
    }
    table.finish();
}

#[test]
fn rope() {
    let mut table = Table::new("rope_backward");
    for pairing in [Pairing::Neighbours, Pairing::Halves] {
        for (t, h, d, dims) in [(1, 1, 4, 4), (3, 2, 8, 6)] {
            let inv_freq = (0..dims / 2).map(|i| 0.7f32.powi(i as i32)).collect();
            let rope = Rope { dims, inv_freq, magnitude: 1.3, pairing };
            let positions: Vec<u32> = (0..t as u32).map(|i| i * 5 + 3).collect();
            let outcome = check(
                vec![normals(&mut Random::new(3), t * h * d)],
                |i| ops::rope(&i[0], &positions, h, d, &rope),
                |_, dy| vec![backward::rope_backward(dy, &positions, h, d, &rope)],
            );
            table.row(&format!("{pairing:?} T {t} H {h} D {d} of which {dims} turn"), outcome);
        }
    }
    table.finish();
}

#[test]
fn attention() {
    let mut table = Table::new("attention_backward");
    for (t, h, kv, d) in [(2, 1, 1, 2), (5, 4, 2, 3), (7, 3, 1, 4), (4, 2, 2, 16)] {
        let mut random = Random::new((t * h * d) as u64);
        let outcome = check(
            [t * h * d, t * kv * d, t * kv * d].map(|n| normals(&mut random, n)).to_vec(),
            |i| ops::attention(&i[0], &i[1], &i[2], 0, h, kv, d),
            |i, dy| {
                let (dq, dk, dv) = backward::attention_backward(&i[0], &i[1], &i[2], h, kv, d, dy);
                vec![dq, dk, dv]
            },
        );
        table.row(&format!("T {t} H {h} KV {kv} D {d}"), outcome);
    }
    table.finish();
}

#[test]
fn swiglu() {
    let mut random = Random::new(5);
    let outcome = check(
        vec![normals(&mut random, 35), normals(&mut random, 35)],
        |i| ops::swiglu(&i[0], &i[1]),
        |i, dy| {
            let (dgate, dup) = backward::swiglu_backward(&i[0], &i[1], dy);
            vec![dgate, dup]
        },
    );
    assert_eq!(outcome, Ok(()));
    // where e^-g leaves f64 nothing becomes NaN
    let (dgate, dup) = backward::swiglu_backward(&[-1e4f64, 1e4], &[2.0, 2.0], &[1.0, 1.0]);
    assert_eq!((dgate, dup), (vec![0.0, 2.0], vec![0.0, 1e4]));
}

#[test]
fn cross_entropy() {
    let mut table = Table::new("cross_entropy_backward");
    for (t, v) in [(1, 2), (4, 9), (3, 257)] {
        let mut random = Random::new((t * v) as u64);
        let mut labels = random.ids(t, v as u32);
        if t > 2 {
            labels[1] = IGNORED;
        }
        let outcome = check(
            vec![normals(&mut random, t * v)],
            |i| backward::cross_entropy(&i[0], &labels, v),
            |i, dy| vec![backward::cross_entropy_backward(&i[0], &labels, v, dy)],
        );
        table.row(&format!("T {t} V {v}"), outcome);
    }
    table.finish();
    // equal logits: the loss is ln V; an ignored label has none, and gives no gradient
    let loss = backward::cross_entropy(&[2.0f32; 12], &[3, IGNORED, 0], 4);
    assert_eq!(loss, [4f32.ln(), 0.0, 4f32.ln()]);
    let dlogits = backward::cross_entropy_backward(&[2.0f32; 12], &[3, IGNORED, 0], 4, &[1.0; 3]);
    assert_eq!(dlogits[4..8], [0.0; 4]);
    // logits that are far apart stay finite
    assert_eq!(backward::cross_entropy(&[1e4f64, -1e4], &[1], 2), [2e4]);
}

/// A whole model's gradients against differences of its loss: two ragged sequences, some labels ignored.
fn check_model(tiny: &TinyModel, table: &mut Table, row: &str) {
    let gguf = tiny.gguf();
    let mut model = ReferenceModel::<f64>::from_gguf(&gguf).expect("a valid model");
    let mut random = Random::new(11);
    let batch = [6, 4].map(|t| {
        let ids = random.ids(t, tiny.vocab);
        let mut labels = random.ids(t, tiny.vocab);
        labels[1] = IGNORED;
        Sequence { ids, labels }
    });
    let gradients = model.gradients(&batch).expect("gradients");
    let trained = |name: &&str| *name != "rope_freqs.weight";
    let names: Vec<&str> = gguf.tensors().iter().map(|tensor| tensor.name.as_str()).filter(trained).collect();
    assert_eq!(gradients.len(), names.len());
    for name in names {
        let gradient = &gradients[name];
        let size = gradient.iter().fold(0.0f64, |most, g| most.max(g.abs()));
        // the largest and some others
        let largest = gradient.iter().position(|g| g.abs() == size).expect("an element");
        let others = (0..gradient.len()).step_by(gradient.len().div_ceil(3));
        let outcome = others.chain([largest]).try_for_each(|i| {
            let step = 1e-4;
            let mut moved = |by: f64| {
                model.weight_mut(name).expect("a tensor")[i] += by;
                let loss = model.loss(&batch).expect("a loss");
                model.weight_mut(name).expect("a tensor")[i] -= by;
                loss
            };
            let want = (moved(step) - moved(-step)) / (2.0 * step);
            if (gradient[i] - want).abs() <= 1e-6 * size {
                return Ok(());
            }
            Err(format!("element {i}: {} where differences give {want}", gradient[i]))
        });
        let outcome = if size == 0.0 { Err("zero throughout".into()) } else { outcome };
        table.row(&format!("{row}: {name}"), outcome);
    }
}

#[test]
fn whole_models() {
    let mut table = Table::new("gradients");
    for architecture in [Architecture::Llama, Architecture::Qwen2, Architecture::Qwen3] {
        for tied in [true, false] {
            let tiny = TinyModel {
                tied,
                other_bias: architecture == Architecture::Qwen2 && tied,
                rope_freqs: (architecture == Architecture::Llama && tied).then(|| vec![1.0, 2.0, 4.0, 1.0, 1.5, 3.0]),
                ..TinyModel::new(architecture, Format::F32, 3)
            };
            check_model(&tiny, &mut table, &format!("{} tied {tied}", architecture.name()));
        }
    }
    table.finish();
}

#[test]
fn a_vocabulary_above_65536() {
    let mut table = Table::new("gradients");
    let tiny = TinyModel::of_a_large_vocabulary(3);
    check_model(&tiny, &mut table, "llama");
    table.finish();
}

#[test]
fn a_bad_batch_is_refused() {
    let mut model =
        ReferenceModel::<f32>::from_gguf(&TinyModel::new(Architecture::Llama, Format::F32, 1).gguf()).unwrap();
    let mut told = |ids: &[u32], labels: &[u32]| {
        let batch = [Sequence { ids: ids.to_vec(), labels: labels.to_vec() }];
        model.loss(&batch).expect_err("a bad batch").to_string()
    };
    assert!(told(&[1, 2], &[1]).contains("one for each of 2 tokens"));
    assert!(told(&[1, 2], &[1, 203]).contains("below the vocabulary's 203"));
    assert!(told(&[1], &[IGNORED]).contains("not ignored"));
    assert!(told(&[203], &[1]).contains("below the vocabulary's 203"));
}
