//! Any bytes give a GGUF file or an error: no panic, no endless loop, no allocation that the bytes do not justify.

#![no_main]

use libfuzzer_sys::fuzz_target;
use peregrine::model::tensors::Tensors;
use peregrine::tokenizer::Tokenizer;
use peregrine::{Config, Gguf};

/// As much data as the seeds' tensors want.
const DATA: usize = 128 << 10;

fuzz_target!(|bytes: &[u8]| {
    read(bytes.to_vec());
    // The same header with data behind it: else nearly every input ends at "outside the file".
    let mut padded = bytes.to_vec();
    padded.resize(bytes.len() + DATA, 0);
    read(padded);
});

fn read(bytes: Vec<u8>) {
    let Ok(gguf) = Gguf::from_bytes(bytes) else { return };
    for tensor in gguf.tensors() {
        std::hint::black_box((tensor.count(), tensor.rows()));
        std::hint::black_box(gguf.data(tensor).unwrap().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)));
    }
    if let Ok(config) = Config::from_gguf(&gguf) {
        let _ = Tensors::find(&gguf, &config);
    }
    let _ = Tokenizer::from_gguf(&gguf);
}
