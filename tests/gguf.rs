//! The GGUF reader: what real files do, good and bad, and files damaged in every way we could think of.

mod common;

use common::{Table, cases::chain, data, json};
use peregrine::Gguf;
use peregrine::formats::Format;
use peregrine::gguf::{Array, TensorType, Value, Writer};
use proptest::prelude::*;
use std::path::Path;

/// Reads the header and every byte of tensor data.
fn read_all(gguf: &Gguf) -> u64 {
    gguf.tensors().iter().map(|t| gguf.data(t).unwrap().iter().map(|&b| b as u64).sum::<u64>()).sum()
}

/// Files of the variants that the reader must refuse, and what the error has to say.
const ERRORS: &[(&str, &[&str])] = &[
    ("meta_duplicate_key.gguf", &["duplicate", "llama.rope.freq_base"]),
    ("meta_unknown_value_type.gguf", &["x.bad", "unknown value type 13"]),
    ("meta_empty_key.gguf", &["empty"]),
    ("layout_alignment_0.gguf", &["general.alignment", "power of two", "got 0"]),
    ("layout_alignment_48.gguf", &["general.alignment", "power of two", "got 48"]),
    ("layout_offset_unaligned.gguf", &["blk.0.attn_k.weight", "offset 16", "alignment 32"]),
    ("layout_offset_overflow.gguf", &["output_norm.weight", "offset 18446744073709551584", "outside the file"]),
    ("version_4.gguf", &["version 4", "2 and 3"]),
    ("version_0.gguf", &["version 0"]),
    ("tensor_size_wraps.gguf", &["blk.0.attn_norm.weight", "size overflow"]),
    ("tensor_name_65_bytes.gguf", &["65 bytes", "63"]),
    ("tensor_duplicate_name.gguf", &["duplicate tensor token_embd.weight"]),
    ("tensor_row_not_block_multiple.gguf", &["blk.0.attn_q.weight", "48", "block of 32"]),
    ("bytes_empty.gguf", &["empty file"]),
    ("bytes_magic_only.gguf", &["truncated", "header"]),
    ("bytes_tensor_info_cut.gguf", &["truncated", "tensor list"]),
    ("bytes_data_cut.gguf", &["truncated or still downloading", "outside the file"]),
    ("bytes_html_page.gguf", &["HTML page"]),
    ("bytes_zip_pth.gguf", &["zip", "PyTorch"]),
    ("bytes_n_kv_huge.gguf", &["metadata count", "4611686018427387904"]),
    ("bytes_n_tensors_huge.gguf", &["tensor count", "truncated"]),
    ("bytes_string_length_huge.gguf", &["string length", "9223372036854775807"]),
    ("split_renamed/renamed.gguf", &["split file name", "-00001-of-00002"]),
    ("split_cat/merged.gguf", &["split", "cat"]),
    ("split/tiny-00002-of-00002.gguf", &["part 2", "tiny-00001-of-00002.gguf"]),
    ("names", &["names", "folder"]),
];

#[test]
fn variants() {
    let Some(reference) = json("variants/variants.json") else { return };
    let mut table = Table::new("variants");
    for (file, words) in ERRORS {
        let Some(path) = data(&format!("variants/{file}")) else { continue };
        table.row(
            file,
            match Gguf::open(path) {
                Ok(_) => Err("it loads".into()),
                Err(error) => {
                    let text = chain(&error);
                    match words.iter().find(|word| !text.contains(**word)) {
                        Some(word) => Err(format!("{word:?} is not in {text:?}")),
                        None => Ok(()),
                    }
                }
            },
        );
    }
    for case in reference.as_array().expect("a list") {
        let file = case["file"].as_str().expect("a name");
        if case["expect"] == "error" {
            continue;
        }
        let Some(path) = data(&format!("variants/{file}")) else { continue };
        table.row(file, Gguf::open(path).map(|gguf| assert!(read_all(&gguf) > 0)).map_err(|error| chain(&error)));
    }
    table.finish();
}

/// Three different messages, each with the path.
#[test]
fn paths_that_cannot_be_opened() {
    let folder = std::env::temp_dir().join(format!("peregrine absent {}", std::process::id()));
    let text = |path: &Path| chain(&Gguf::open(path).expect_err("no such model"));
    let absent = text(&folder.join("modèle 🦙.gguf"));
    assert!(absent.contains("modèle 🦙.gguf") && absent.contains("No such file"), "{absent}");
    std::fs::create_dir_all(&folder).unwrap();
    let is_folder = text(&folder);
    assert!(is_folder.contains("peregrine absent") && is_folder.contains("folder"), "{is_folder}");
    std::fs::remove_dir(&folder).unwrap();
    if cfg!(unix) {
        let device = text(Path::new("/dev/null"));
        assert!(device.contains("/dev/null") && device.contains("device"), "{device}");
    }
}

#[test]
fn what_is_no_gguf_is_named() {
    let mut table = Table::new("no GGUF");
    let mut swapped = b"GGUF".to_vec();
    swapped.extend(3u32.to_be_bytes());
    swapped.extend([0; 16]);
    let mut old = b"GGUF".to_vec();
    old.extend(1u32.to_le_bytes());
    old.extend([0; 16]);
    let safetensors = [&40u64.to_le_bytes()[..], b"{\"__metadata__\":{}}"].concat();
    let cases: &[(&[u8], &[&str])] = &[
        (b"", &["empty"]),
        (b"GGUF", &["truncated"]),
        (b"GGUF\x03\0\0", &["truncated"]),
        (&swapped, &["big-endian"]),
        (&old, &["version 1", "Convert"]),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0", &["Git LFS pointer"]),
        (b"\n<!DOCTYPE html><html>", &["HTML page"]),
        (&safetensors, &["safetensors"]),
        (b"tjgg\x03\0\0\0", &["GGML"]),
        (b"lmgg\0\0", &["GGML"]),
        (b"PK\x03\x04\0\0", &["zip"]),
        (b"\x1f\x8b\x08\0", &["compressed"]),
        (b"{\"error\": \"not found\"}", &["JSON"]),
        (b"Not Found", &["text file"]),
        (&[0; 64], &["zeros"]),
        (&[7, 200, 3, 4, 5, 6, 7, 8, 9], &["unknown kind", "07 c8 03 04"]),
    ];
    for (bytes, words) in cases {
        let outcome = match Gguf::from_bytes(bytes.to_vec()) {
            Ok(_) => Err("it loads".into()),
            Err(error) => {
                let text = chain(&error);
                words
                    .iter()
                    .find(|word| !text.contains(**word))
                    .map_or(Ok(()), |word| Err(format!("{word:?} is not in {text:?}")))
            }
        };
        table.row(&format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(20)])), outcome);
    }
    table.finish();
}

/// A version 3 header, byte by byte, for what the writer refuses: metadata entries as (key, type and value), F32 tensors
/// as (name, shape, offset), and nothing behind.
fn header(entries: &[(&str, &[u8])], tensors: &[(&str, &[u64], u64)]) -> Vec<u8> {
    let mut out = b"GGUF\x03\0\0\0".to_vec();
    let text = |out: &mut Vec<u8>, text: &str| {
        out.extend((text.len() as u64).to_le_bytes());
        out.extend(text.as_bytes());
    };
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend((entries.len() as u64).to_le_bytes());
    for (key, value) in entries {
        text(&mut out, key);
        out.extend(*value);
    }
    for (name, shape, offset) in tensors {
        text(&mut out, name);
        out.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|dim| out.extend(dim.to_le_bytes()));
        out.extend(0u32.to_le_bytes());
        out.extend(offset.to_le_bytes());
    }
    out
}

#[test]
fn tensors_of_no_weights_load() {
    for shape in [&[0][..], &[0, 3], &[4, 0, 2]] {
        let gguf = Gguf::from_bytes(header(&[], &[("t", shape, 0)])).expect("no data is wanted, though the file ends");
        let tensor = &gguf.tensors()[0];
        assert_eq!((gguf.data(tensor).unwrap(), tensor.count()), (&[][..], 0));
        tensor.rows();
    }
}

/// Errors of headers that are well-formed up to one number.
#[test]
fn damaged_headers() {
    const HUGE: u64 = 1 << 40;
    let part = |number: u64, count: u64| Writer::new().set("split.no", number).set("split.count", count).to_bytes();
    let array_of_one_array = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat();
    let nested = [&9u32.to_le_bytes()[..], &array_of_one_array.repeat(9), &[0; 12]].concat();
    let long_key = "k".repeat(65536);
    let cases: &[(&str, Vec<u8>, &[&str])] = &[
        ("rows of nothing", header(&[], &[("t", &[0, HUGE, HUGE], 0)]), &["tensor t", "size overflow"]),
        ("too many weights", header(&[], &[("t", &[HUGE, HUGE, 0], 0)]), &["tensor t", "size overflow"]),
        ("no dimension", header(&[], &[("t", &[], 0), ("another", &[1; 4], 0)]), &["0 dimensions", "1 to 4"]),
        ("five dimensions", header(&[], &[("t", &[1; 5], 0)]), &["5 dimensions", "1 to 4"]),
        ("long key", header(&[(&long_key, &[0, 0, 0, 0, 1])], &[]), &["key 0", "65536 bytes", "65535"]),
        ("a bool of 2", header(&[("x.b", &[7, 0, 0, 0, 2])], &[]), &["x.b", "0 or 1", "got 2"]),
        ("deep arrays", header(&[("x.a", &nested)], &[]), &["x.a", "nested deeper"]),
        ("part 2^64 - 1", part(u64::MAX, 2).unwrap(), &["split.no", "below split.count, 2"]),
        ("2^64 - 1 parts", part(0, u64::MAX).unwrap(), &["split.count", "at most 65535"]),
        ("part 2 of 2 in memory", part(1, 2).unwrap(), &["part 2", "2 files"]),
    ];
    let mut table = Table::new("damaged headers");
    for (name, bytes, words) in cases {
        let outcome = match Gguf::from_bytes(bytes.clone()) {
            Ok(_) => Err("it loads".into()),
            Err(error) => {
                let text = chain(&error);
                let absent = words.iter().find(|word| !text.contains(**word));
                absent.map_or(Ok(()), |word| Err(format!("{word:?} is not in {text:?}")))
            }
        };
        table.row(name, outcome);
    }
    table.finish();
}

/// An error shows the beginning of a long string, not all of it.
#[test]
fn errors_stay_short() {
    let bytes = Writer::new().set("x.number", "7".repeat(1 << 20)).to_bytes().unwrap();
    let text = chain(&Gguf::from_bytes(bytes).unwrap().u32("x.number").expect_err("a string is no number"));
    assert!(text.contains("x.number") && text.contains("777\"...") && text.len() < 300, "{} bytes", text.len());
}

/// What the reader would refuse, or read otherwise, is not written.
#[test]
fn the_writer_refuses() {
    let f32s = TensorType::from_name("F32").unwrap();
    let q8 = TensorType::from_name("Q8_0").unwrap();
    static DATA: [u8; 34] = [0; 34];
    let long = "n".repeat(64);
    let mut table = Table::new("writer");
    let mut row = |name: &str, word: &str, build: &dyn Fn(&mut Writer)| {
        let mut writer = Writer::new();
        build(&mut writer);
        let outcome = match writer.to_bytes() {
            Ok(_) => Err("it is written".into()),
            Err(error) if chain(&error).contains(word) => Ok(()),
            Err(error) => Err(format!("{word:?} is not in {:?}", chain(&error))),
        };
        table.row(name, outcome);
    };
    row("alignment 48", "power of two", &|w| {
        w.alignment(48);
    });
    row("no key", "metadata key", &|w| {
        w.set("", 1u32);
    });
    row("half a block in a row", "block of 32", &|w| {
        w.tensor("t", &[16, 2], q8, &DATA);
    });
    row("weights beyond 2^64", "size overflow", &|w| {
        w.tensor("t", &[1 << 40, 1 << 40], f32s, &[]);
    });
    row("data of another size", "12 bytes", &|w| {
        w.tensor("t", &[3], f32s, &DATA[..8]);
    });
    row("no dimension", "1 to 4", &|w| {
        w.tensor("t", &[], f32s, &DATA[..4]);
    });
    row("a long name", "64", &|w| {
        w.tensor(&long, &[1], f32s, &DATA[..4]);
    });
    row("a name twice", "t twice", &|w| {
        w.tensor("t", &[1], f32s, &DATA[..4]).tensor("t", &[1], f32s, &DATA[..4]);
    });
    table.finish();
}

/// Data that comes when it is asked for makes the same file as data that is held; also the header and the size alone.
#[test]
fn the_writer_streams() {
    let f32s = TensorType::from_name("F32").unwrap();
    let (one, two) = ([1u8; 12], [2u8; 40]);
    let mut held = Writer::new();
    held.set("k", 1u32).tensor("one", &[3], f32s, &one).tensor("two", &[5, 2], f32s, &two);
    let held = held.to_bytes().unwrap();
    let mut later = Writer::new();
    later.set("k", 1u32).tensor_later("one", &[3], f32s).tensor("two", &[5, 2], f32s, &two);
    let mut streamed = Vec::new();
    let mut asked = Vec::new();
    later
        .write_with(&mut streamed, |name, out| {
            asked.push(name.to_string());
            one.chunks(5).try_for_each(|piece| out.write_all(piece))
        })
        .unwrap();
    assert_eq!((&streamed, asked), (&held, vec!["one".to_string()]));
    assert_eq!(later.size().unwrap(), held.len() as u64);
    assert!(held.starts_with(&later.header().unwrap()));

    for bytes in [8, 16] {
        let error = later.write_with(&mut Vec::new(), |_, out| out.write_all(&[0; 16][..bytes])).unwrap_err();
        let text = chain(&error);
        assert!(text.contains("tensor one: expected 12 bytes") && text.contains(&bytes.to_string()), "{text}");
    }
    assert!(later.to_bytes().is_err(), "data that never comes");
    let full = later.write_with(&mut Vec::new(), |_, _| Err(std::io::ErrorKind::StorageFull.into())).unwrap_err();
    assert!(matches!(full, peregrine::Error::Write { .. }), "{full}");
}

/// Copying all metadata from one file to another sets the alignment as a plain key.
#[test]
fn the_writer_aligns_as_the_key_says() {
    let f32s = TensorType::from_name("F32").unwrap();
    let (one, two) = ([1u8; 4], [2u8; 4]);
    let mut writer = Writer::new();
    writer.set("general.alignment", 64u32).tensor("one", &[1], f32s, &one).tensor("two", &[1], f32s, &two);
    let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
    assert_eq!(gguf.alignment(), 64);
    for (name, bytes) in [("one", one), ("two", two)] {
        assert_eq!(gguf.data(gguf.tensor(name).unwrap()).unwrap(), bytes, "{name}");
    }
}

fn built_in() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("models/tales-2m.Q8_0.gguf")).expect("the built-in model")
}

/// Each gives an error or a valid load, whose every tensor can be read; none panics, none takes long.
#[test]
fn mutated_copies_never_panic() {
    let good = built_in();
    let header = good.len() - 2_930_000.min(good.len() - 1); // the metadata and tensor table lie in the first part
    let mut random = common::Random::new(17);
    let mut loads = 0;
    for round in 0..400 {
        let mut bytes = good.clone();
        match round % 8 {
            // one to eight flipped bits anywhere in the header
            0 | 1 => (0..=random.below(8)).for_each(|_| {
                let at = random.below(header as u32) as usize;
                bytes[at] ^= 1 << random.below(8);
            }),
            // a cut
            2 => bytes.truncate(random.below(good.len() as u32) as usize),
            3 => bytes.truncate(random.below(header as u32) as usize),
            // stray bytes behind, or in the middle
            4 => bytes.extend((0..random.below(5000)).map(|i| i as u8)),
            5 => {
                let at = random.below(header as u32) as usize;
                bytes.splice(at..at, (0..random.below(40) as u8).collect::<Vec<_>>());
            }
            // a number becomes huge
            6 => {
                let at = random.below(header as u32) as usize;
                bytes[at..at + 8].copy_from_slice(&u64::MAX.wrapping_shr(random.below(40)).to_le_bytes());
            }
            // a number becomes another small one: offsets overlap, counts differ
            _ => {
                let at = random.below(header as u32) as usize / 8 * 8;
                bytes[at..at + 8].copy_from_slice(&(random.below(4096) as u64 * 32).to_le_bytes());
            }
        }
        if let Ok(gguf) = Gguf::from_bytes(bytes) {
            loads += 1;
            std::hint::black_box(read_all(&gguf));
            // and all that a loader asks of it: an error or an answer, no panic
            if let Ok(config) = peregrine::Config::from_gguf(&gguf) {
                let _ = peregrine::model::tensors::Tensors::find(&gguf, &config);
            }
            let _ = peregrine::tokenizer::Tokenizer::from_gguf(&gguf);
        }
    }
    assert!(loads > 20 && loads < 380, "{loads} of 400 load: the mutations miss their aim");
}

/// Any metadata value, nested at most twice.
fn any_value() -> impl Strategy<Value = Value> {
    let text = || prop::collection::vec(any::<u8>(), 0..9);
    let float = || any::<u32>().prop_map(|bits| f32::from_bits(bits & 0xbfff_ffff)); // no NaN: it equals nothing
    let flat = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..5).prop_map(Array::U8),
        prop::collection::vec(any::<i8>(), 0..5).prop_map(Array::I8),
        prop::collection::vec(any::<u16>(), 0..5).prop_map(Array::U16),
        prop::collection::vec(any::<i16>(), 0..5).prop_map(Array::I16),
        prop::collection::vec(any::<u32>(), 0..5).prop_map(Array::U32),
        prop::collection::vec(any::<i32>(), 0..5).prop_map(Array::I32),
        prop::collection::vec(float(), 0..5).prop_map(Array::F32),
        prop::collection::vec(any::<bool>(), 0..5).prop_map(Array::Bool),
        prop::collection::vec(text(), 0..5).prop_map(|list| Array::String(list.into_iter().collect())),
        prop::collection::vec(any::<u64>(), 0..5).prop_map(Array::U64),
        prop::collection::vec(any::<i64>(), 0..5).prop_map(Array::I64),
        prop::collection::vec(float().prop_map(f64::from), 0..5).prop_map(Array::F64),
    ];
    let array = flat.prop_recursive(2, 12, 3, |inner| prop::collection::vec(inner, 0..3).prop_map(Array::Array));
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        float().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        text().prop_map(Value::String),
        array.prop_map(Value::Array),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        float().prop_map(|v| Value::F64(v.into())),
    ]
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        values in prop::collection::vec(any_value(), 0..6),
        tensors in prop::collection::vec((0usize..11, 1u64..4, 1u64..4, any::<u8>()), 0..6),
        alignment in prop::sample::select(vec![8u32, 16, 32, 64, 4096]),
    ) {
        let data: Vec<(Format, Vec<u64>, Vec<u8>)> = tensors
            .iter()
            .map(|&(format, blocks, rows, byte)| {
                let format = Format::ALL[format];
                let bytes = vec![byte; (blocks * rows) as usize * format.block_bytes()];
                (format, vec![blocks * format.block_weights() as u64, rows], bytes)
            })
            .collect();
        let mut writer = Writer::new();
        writer.alignment(alignment);
        values.iter().enumerate().for_each(|(i, value)| {
            writer.set(&format!("key.{i}"), value.clone());
        });
        for (i, (format, shape, bytes)) in data.iter().enumerate() {
            writer.tensor(&format!("tensor.{i}"), shape, format.tensor_type(), bytes);
        }
        let gguf = Gguf::from_bytes(writer.to_bytes().unwrap()).unwrap();
        prop_assert_eq!((gguf.version(), gguf.alignment()), (3, alignment as usize));
        for (i, value) in values.iter().enumerate() {
            prop_assert_eq!(gguf.get(&format!("key.{i}")), Some(value));
        }
        for (i, (format, shape, bytes)) in data.iter().enumerate() {
            let tensor = gguf.tensor(&format!("tensor.{i}")).unwrap();
            prop_assert_eq!((&tensor.shape, tensor.kind), (shape, format.tensor_type()));
            prop_assert_eq!(gguf.data(tensor).unwrap(), &bytes[..]);
        }
    }
}
