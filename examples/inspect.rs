//! Prints what a model file holds, without a GPU: `cargo run --release --example inspect -- MODEL.gguf`.

use peregrine::gguf::dims;
use peregrine::{Config, Gguf, builtin};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let gguf = std::env::args().nth(1).map_or_else(builtin::tales, Gguf::open)?;
    println!("{:#?}", Config::from_gguf(&gguf)?);
    for (key, value) in gguf.metadata() {
        let shown = value.as_str().map_or_else(|| value.kind(), |text| format!("{text:.60?}"));
        println!("{key:<44} {shown}");
    }
    for tensor in gguf.tensors() {
        println!(
            "{:<32} {:<6} {:>14}  {:>10} bytes",
            tensor.name,
            tensor.kind.name(),
            dims(&tensor.shape),
            tensor.size
        );
    }
    Ok(())
}
