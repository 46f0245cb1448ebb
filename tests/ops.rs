//! The reference ops against numbers worked out by hand: the oracle of the kernels needs an oracle too.

mod common;

use common::{Random, assert_close};
use peregrine::model::{Pairing, Rope};
use peregrine::reference::ops;
use std::f32::consts::FRAC_PI_2;

#[test]
fn embed_gathers_rows() {
    let table = [0.0, 1.0, 10.0, 11.0, 20.0, 21.0]; // [3, 2]
    assert_eq!(ops::embed(&table, &[2, 0, 2], 2), [20.0, 21.0, 0.0, 1.0, 20.0, 21.0]);
    assert!(ops::embed(&table, &[], 2).is_empty());
}

#[test]
fn rms_norm_divides_by_the_root_mean_square() {
    // Mean squares 12.5 and, with eps, 0 + 4.
    let out = ops::rms_norm(&[3.0, 4.0], &[1.0, 2.0], 0.0);
    assert_close("rms_norm", &out, &[3.0 / 12.5f32.sqrt(), 8.0 / 12.5f32.sqrt()], 1e-6, 0.0);
    let out = ops::rms_norm(&[2.0, 2.0, 0.0, 0.0], &[1.0, 1.0], 4.0);
    assert_close("rms_norm", &out, &[2.0 / 8f32.sqrt(), 2.0 / 8f32.sqrt(), 0.0, 0.0], 1e-6, 0.0);
}

#[test]
fn matmul_takes_weights_by_rows() {
    let x = [1.0, 2.0, 3.0, 0.0, 1.0, 0.0]; // [2, 3]
    let w = [1.0, 0.0, 0.0, 1.0, 1.0, 1.0]; // [2, 3]
    assert_eq!(ops::matmul(&x, &w, 2, 3, 2), [1.0, 6.0, 0.0, 1.0]);
    assert_eq!(ops::matvec(&x[..3], &w, 3, 2), [1.0, 6.0]);
    // f32 sums would lose the 1.
    assert_eq!(ops::matvec(&[1e8, 1.0, -1e8], &[1.0; 3], 3, 1), [1.0]);
}

#[test]
fn biases_and_residuals_add() {
    assert_eq!(ops::add_bias(&[1.0, 2.0, 3.0, 4.0], &[10.0, 20.0]), [11.0, 22.0, 13.0, 24.0]);
    assert_eq!(ops::add(&[1.0, 2.0], &[0.5, -2.0]), [1.5, 0.0]);
}

#[test]
fn rope_turns_pairs() {
    // The first pair turns by a right angle per position, the second stands still.
    let rope = |pairing, dims: usize| Rope {
        dims,
        inv_freq: vec![FRAC_PI_2, 0.0][..dims / 2].into(),
        magnitude: 1.0,
        pairing,
    };
    let x = [1.0, 2.0, 3.0, 4.0]; // [1, 1, 4]
    let turn = |position: u32, rope: &Rope| ops::rope(&x, &[position], 1, 4, rope);

    let neighbours = rope(Pairing::Neighbours, 4);
    assert_close("position 0", &turn(0, &neighbours), &x, 0.0, 0.0);
    assert_close("(0, 1)", &turn(1, &neighbours), &[-2.0, 1.0, 3.0, 4.0], 1e-6, 0.0);
    assert_close("(0, 1) twice", &turn(2, &neighbours), &[-1.0, -2.0, 3.0, 4.0], 1e-6, 0.0);
    assert_close("(0, 2)", &turn(1, &rope(Pairing::Halves, 4)), &[-3.0, 2.0, 1.0, 4.0], 1e-6, 0.0);
    assert_close("(0, 1) of 2 dims", &turn(1, &rope(Pairing::Halves, 2)), &[-2.0, 1.0, 3.0, 4.0], 1e-6, 0.0);

    let louder = Rope { magnitude: 2.0, ..rope(Pairing::Halves, 2) };
    assert_close("magnitude", &turn(1, &louder), &[-4.0, 2.0, 3.0, 4.0], 1e-6, 0.0);

    // Two tokens of two heads of two: each token has its own angle, shared by its heads.
    let out = ops::rope(&[1.0, 0.0, 0.0, 1.0, 1.0, 0.0, 0.0, 1.0], &[1, 3], 2, 2, &rope(Pairing::Halves, 2));
    assert_close("two tokens", &out, &[0.0, 1.0, -1.0, 0.0, 0.0, -1.0, 1.0, 0.0], 1e-6, 0.0);
}

#[test]
fn kv_store_writes_from_the_position() {
    let mut cache = [0.0; 8]; // [4, 1, 2]
    ops::kv_store(&mut cache, &[1.0, 2.0, 3.0, 4.0], 1, 1, 2);
    assert_eq!(cache, [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0, 0.0]);
}

#[test]
fn attention_is_causal_and_shares_kv_heads() {
    // 4 heads share 2 kv heads; all keys are zero, so that every row seen weighs the same.
    let (h, kv, d) = (4, 2, 2);
    let k = [0.0; 3 * 2 * 2];
    let v: Vec<f32> = (0..12).map(|i| i as f32).collect(); // row j: kv head 0 has 4j, 4j+1; kv head 1 has 4j+2, 4j+3
    let q = vec![1.0; 2 * h * d];
    let out = ops::attention(&q, &k, &v, 1, h, kv, d);
    let (row_1, row_2) = ([2.0, 3.0, 2.0, 3.0, 4.0, 5.0, 4.0, 5.0], [4.0, 5.0, 4.0, 5.0, 6.0, 7.0, 6.0, 7.0]);
    assert_close("means of 2 and of 3 rows", &out, &[row_1, row_2].concat(), 1e-6, 0.0);

    // Scores are q.k / sqrt(D): keys 0 and ln 3 * 2 with q = 1 and D = 4 weigh 1/4 and 3/4.
    let (q, k) = ([1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 0.0, 3f32.ln() * 2.0, 0.0, 0.0, 0.0]);
    let v = [0.0, 0.0, 0.0, 0.0, 4.0, 8.0, 0.0, -4.0];
    assert_close("weights", &ops::attention(&q, &k, &v, 1, 1, 1, 4), &[3.0, 6.0, 0.0, -3.0], 1e-5, 0.0);
}

#[test]
fn swiglu_is_silu_of_the_gate_times_up() {
    let out = ops::swiglu(&[0.0, 1.0, -1.0, 1e4, -1e4], &[5.0, 2.0, 2.0, 3.0, 3.0]);
    assert_close("swiglu", &out, &[0.0, 1.4621172, -0.5378828, 3e4, 0.0], 1e-6, 1e-6);
}

#[test]
fn softmax_of_each_row() {
    let out = ops::softmax(&[0.0, 3f32.ln(), 1e30, 1e30, -1e30, 7.0], 2);
    assert_close("softmax", &out, &[0.25, 0.75, 0.5, 0.5, 0.0, 1.0], 1e-6, 0.0);
    let row = Random::new(1).normals(1757, 5.0);
    assert_close("sum", &[ops::softmax(&row, 1757).iter().sum()], &[1.0], 1e-5, 0.0);
}

#[test]
fn the_lowest_id_wins_among_equals() {
    let x = [1.0, 7.0, -2.0, 7.0, 7.0, 3.0];
    assert_eq!(ops::argmax(&x, 6), [1]);
    assert_eq!(ops::argmax(&x, 3), [1, 0]);
    assert_eq!(ops::argmax(&[-5.0, -3.0, -4.0], 3), [1]);
    assert_eq!(ops::top_k(&x, 4), (vec![1, 3, 4, 5], vec![7.0, 7.0, 7.0, 3.0]));
    assert_eq!(ops::top_k(&x, 99).0, [1, 3, 4, 5, 0, 2]);
}
