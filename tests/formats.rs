//! The CPU decoders, to the bit, against the `gguf` package's (tests/data/make_formats.py made the numbers), and the
//! encoders against the decoders.

mod common;

use common::{Random, Table, json};
use half::f16;
use peregrine::formats::Format;
use proptest::prelude::*;

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len() / 2).map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap()).collect()
}

#[test]
fn decoders_equal_the_gguf_package_to_the_bit() {
    let reference = json("formats.json").expect("a file of ours");
    let mut table = Table::new("formats");
    for format in Format::ALL {
        let case = &reference[format.name()];
        let (input, want) = (bytes(case["bytes"].as_str().unwrap()), bytes(case["f32"].as_str().unwrap()));
        let mut got = vec![0.0f32; want.len() / 4];
        format.decode(&input, &mut got);
        let want: Vec<u32> = want.chunks(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
        let wrong = got.iter().zip(&want).position(|(got, want)| got.to_bits() != *want);
        let outcome = wrong.map_or(Ok(()), |i| Err(format!("weight {i}: {} for {}", got[i], f32::from_bits(want[i]))));
        table.row(format.name(), outcome);
    }
    table.finish();
}

#[test]
fn block_sizes_are_those_of_the_file_format() {
    for format in Format::ALL {
        let (weights, bytes) = format.tensor_type().block().unwrap();
        assert_eq!((format.block_weights() as u64, format.block_bytes() as u64), (weights, bytes), "{}", format.name());
        assert_eq!(Format::from_type(format.tensor_type()), Some(format));
    }
}

/// The step of the grid that a weight of a block lies on; for the formats without blocks, twice what rounding to the
/// nearest may move the weight by.
fn step(format: Format, block: &[u8], i: usize, weight: f32) -> f32 {
    let half = |at: usize| f16::from_le_bytes([block[at], block[at + 1]]).to_f32();
    match format {
        Format::F32 => 0.0,
        Format::F16 => (weight.abs() * 2f32.powi(-10)).max(2f32.powi(-24)),
        Format::BF16 => (weight.abs() * 2f32.powi(-7)).max(2f32.powi(-133)),
        Format::Q4_0 | Format::Q4_1 | Format::Q5_0 | Format::Q5_1 | Format::Q8_0 => half(0).abs(),
        Format::Q4_K | Format::Q5_K => {
            let (packed, s) = (&block[4..16], i / 32);
            let scale = match s {
                0..4 => packed[s] & 63,
                _ => packed[s + 4] & 15 | packed[s - 4] >> 6 << 4,
            };
            half(0) * scale as f32
        }
        Format::Q6_K => half(208) * block[192 + i / 16] as i8 as f32,
    }
}

/// Encodes, and decodes again.
fn round_trip(format: Format, weights: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (mut bytes, mut decoded) = (Vec::new(), vec![0.0; weights.len()]);
    format.encode(weights, &mut bytes);
    format.decode(&bytes, &mut decoded);
    (bytes, decoded)
}

/// Every weight is at most half a step of its block's grid away (and what f32 rounds). Beyond `reach` a scale, which is
/// a half, cannot follow: then the number must be finite.
fn check_half_step(format: Format, weights: &[f32]) -> Result<(), String> {
    let (bytes, decoded) = round_trip(format, weights);
    let reach = match format {
        Format::F32 | Format::BF16 => f32::MAX,
        Format::Q4_K | Format::Q5_K | Format::Q6_K => 65504.0 * 63.0,
        _ => 65504.0,
    };
    for (b, block) in bytes.chunks(format.block_bytes()).enumerate() {
        let range = b * format.block_weights()..(b + 1) * format.block_weights();
        let in_reach = weights[range.clone()].iter().all(|w| w.abs() <= reach);
        let largest = weights[range.clone()].iter().fold(0.0f32, |most, w| most.max(w.abs()));
        for i in range {
            let (weight, got) = (weights[i], decoded[i]);
            let step = step(format, block, i % format.block_weights(), weight);
            let error = (weight - got).abs();
            let rounding = if step > 0.0 { 1e-6 * largest } else { 0.0 };
            let far = in_reach && error > 0.5001 * step + rounding;
            if far || !got.is_finite() {
                return Err(format!("weight {i}: {got} for {weight}, the step is {step}"));
            }
        }
    }
    Ok(())
}

/// Blocks that hold something odd, 512 weights each.
fn odd_blocks() -> Vec<(&'static str, Vec<f32>)> {
    let mut random = Random::new(3);
    let normals = random.normals(512, 1.0);
    let times = |factor: f32| normals.iter().map(|w| w * factor).collect::<Vec<f32>>();
    let at = |i: usize, value: f32| {
        let mut weights = normals.clone();
        weights[i] = value;
        weights
    };
    vec![
        ("zeros", vec![0.0; 512]),
        ("negative zeros", vec![-0.0; 512]),
        ("ones", vec![1.0; 512]),
        ("a constant that is no half", vec![-0.1; 512]),
        ("constants of two signs", (0..512).map(|i| [0.3, -7.7][i / 32 % 2]).collect()),
        ("normals", normals.clone()),
        ("far from zero", normals.iter().map(|w| 1000.0 + w).collect()),
        ("far below zero", normals.iter().map(|w| -1000.0 + 1e-3 * w).collect()),
        ("scales that are subnormal halves", times(1e-5)),
        ("scales below the smallest half", times(1e-9)),
        ("subnormal f32", times(1e-39)),
        ("one huge", at(77, 60000.0)),
        ("one huge, negative", at(0, -60000.0)),
        ("one beyond any scale", at(300, 1e30)),
        ("the largest f32", at(5, f32::MAX)),
        ("all beyond any scale", times(1e30)),
        ("one-sided", normals.iter().map(|w| w.abs()).collect()),
        ("one-sided, negative", normals.iter().map(|w| -w.abs()).collect()),
        ("both ends alike", (0..512).map(|i| [8.0, -8.0, 1.0, 0.0][i % 4]).collect()),
        ("one alone", (0..512).map(|i| if i == 100 { 3.0 } else { 0.0 }).collect()),
    ]
}

#[test]
fn encoding_moves_no_weight_by_more_than_half_a_step() {
    let mut table = Table::new("encoders");
    for format in Format::ALL {
        for (name, weights) in odd_blocks() {
            table.row(&format!("{} {name}", format.name()), check_half_step(format, &weights));
        }
    }
    table.finish();
}

/// Half a step alone says little: the step must be small too. Root of the mean squared error over the deviation of
/// normal weights, at most.
#[test]
fn encoding_is_as_fine_as_its_bits() {
    let bounds = [
        (Format::F32, 0.0),
        (Format::F16, 3e-4),
        (Format::BF16, 2.5e-3),
        (Format::Q4_0, 0.09),
        (Format::Q4_1, 0.082),
        (Format::Q5_0, 0.045),
        (Format::Q5_1, 0.041),
        (Format::Q8_0, 0.0058),
        (Format::Q4_K, 0.075),
        (Format::Q5_K, 0.037),
        (Format::Q6_K, 0.019),
    ];
    let weights = Random::new(4).normals(16384, 0.02);
    let mut table = Table::new("fineness");
    for (format, bound) in bounds {
        let (_, decoded) = round_trip(format, &weights);
        let squares: f32 = weights.iter().zip(&decoded).map(|(w, got)| (w - got) * (w - got)).sum();
        let relative = (squares / weights.len() as f32).sqrt() / 0.02;
        let outcome = if relative <= bound { Ok(()) } else { Err(format!("{relative}, expected at most {bound}")) };
        table.row(format.name(), outcome);
    }
    table.finish();
}

/// What a block holds already comes back the same: in the formats of 32 always, with normal scales; in the K-quants
/// where the largest scale and minimum are used in full and every block reaches both ends of its grid.
#[test]
fn encoding_decoded_weights_changes_nothing() {
    let mut table = Table::new("twice");
    let mut random = Random::new(5);
    let normals = random.normals(8192, 0.02);
    for format in Format::ALL {
        let once = match format {
            Format::Q4_K | Format::Q5_K | Format::Q6_K => {
                let mut decoded = vec![0.0; 16 * 256];
                format.decode(&full_blocks(format, 16, &mut random), &mut decoded);
                decoded
            }
            _ => round_trip(format, &normals).1,
        };
        let twice = round_trip(format, &once).1;
        let wrong = once.iter().zip(&twice).position(|(once, twice)| once != twice);
        let outcome = wrong.map_or(Ok(()), |i| Err(format!("weight {i}: {} for {}", twice[i], once[i])));
        table.row(format.name(), outcome);
    }
    table.finish();
}

/// Random super-blocks with every scale above zero, one scale and one minimum at their most, and levels that reach both
/// ends in every block.
fn full_blocks(format: Format, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..count {
        let mut block: Vec<u8> = (0..format.block_bytes()).map(|_| random.below(256) as u8).collect();
        let d = f16::from_f32(0.001 + 0.01 * random.uniform()).to_le_bytes();
        if format == Format::Q6_K {
            block[..192].fill(0);
            for s in 0..16 {
                let scale = if s == 3 { 127 } else { 1 + random.below(127) as u8 };
                block[192 + s] = scale;
                for l in 0..16 {
                    let q = match l {
                        0 => 1, // level -31
                        1 => 63,
                        _ => 1 + random.below(63) as u8,
                    };
                    let (half, g, l) = (s / 8, s / 2 % 4, s % 2 * 16 + l);
                    block[64 * half + g % 2 * 32 + l] |= (q & 15) << (g / 2 * 4);
                    block[128 + 32 * half + l] |= q >> 4 << (2 * g);
                }
            }
            block[208..].copy_from_slice(&d);
        } else {
            let nibbles = format.block_bytes() - 128;
            block[..2].copy_from_slice(&d);
            block[2..4].copy_from_slice(&f16::from_f32(0.01 + 0.01 * random.uniform()).to_le_bytes());
            for s in 0..4 {
                block[4 + s] |= 1; // scales of blocks 0 to 3 are not zero
                block[12 + s] |= 1; // nor those of blocks 4 to 7
            }
            block[4] |= 63; // block 0 has the largest scale and the largest minimum
            block[8] |= 63;
            for group in 0..4 {
                block[nibbles + 32 * group] = 0;
                block[nibbles + 32 * group + 1] = 255;
            }
            if format == Format::Q5_K {
                block[16] = 0; // of weight 0 of every block
                block[17] = 255;
            }
        }
        bytes.extend(block);
    }
    bytes
}

#[test]
fn zeros_stay_zeros_and_nan_becomes_zero_in_blocks() {
    for format in Format::ALL.into_iter().filter(|format| format.block_weights() > 1) {
        for value in [0.0, f32::NAN] {
            let (_, decoded) = round_trip(format, &vec![value; 256]);
            assert!(decoded.iter().all(|&w| w == 0.0), "{} of {value}: {decoded:?}", format.name());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Blocks of any size of numbers, with some far larger or smaller than the others.
    #[test]
    fn random_blocks_keep_the_bound(
        seed in any::<u64>(),
        exponent in -30i32..16,
        offset in prop_oneof![Just(0.0f32), -3.0f32..3.0],
        outliers in prop::collection::vec((0usize..256, -12i32..6), 0..6),
    ) {
        let size = 2f32.powi(exponent);
        let mut weights: Vec<f32> = Random::new(seed).normals(256, size).iter().map(|w| w + offset * size).collect();
        for (i, exponent) in outliers {
            weights[i] *= 2f32.powi(exponent);
        }
        for format in Format::ALL {
            let outcome = check_half_step(format, &weights);
            prop_assert!(outcome.is_ok(), "{}: {}", format.name(), outcome.unwrap_err());
        }
    }

    /// Any bits at all: numbers that are not finite too.
    #[test]
    fn any_bits_encode_to_finite_blocks(bits in prop::collection::vec(any::<u32>(), 256)) {
        let weights: Vec<f32> = bits.into_iter().map(f32::from_bits).collect();
        for format in Format::ALL.into_iter().filter(|format| format.block_weights() > 1) {
            let (_, decoded) = round_trip(format, &weights);
            prop_assert!(decoded.iter().all(|w| w.is_finite()), "{}: {decoded:?}", format.name());
        }
    }
}
