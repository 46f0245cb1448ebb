//! The CPU decoders, to the bit, against the `gguf` package's (tests/data/make_formats.py made the numbers).

mod common;

use common::{Table, json};
use peregrine::formats::Format;

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
