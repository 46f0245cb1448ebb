//! `debug synth`: a file in the shape of a real model, with random weights, so that speed can be measured and explained
//! without a download.

use super::open::Context;
use super::{Failure, output};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use peregrine::files::replace_with;
use peregrine::formats::Format;
use peregrine::gguf::{Strings, Writer};
use peregrine::model::tensors::{Need, Role, slots};
use peregrine::{Config, Error, Gguf};
use rand_core::Rng;
use rand_pcg::Pcg64;
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

/// Of the weights: that of a freshly initialised model, which keeps activations in bounds at every depth.
const DEVIATION: f32 = 0.02;
/// Random weights that are encoded for each format.
const POOL: usize = 1 << 20;

#[derive(Args)]
pub struct Synth {
    /// The model whose shape it has
    #[arg(long, value_enum)]
    shape: Shape,
    /// Format of the matrices; Q4_K and Q5_K as in files of the kind K_M, which have Q6_K for the output head and, in half
    /// of the blocks, for attn_v and ffn_down
    #[arg(long, value_parser = formats(), ignore_case = true)]
    format: Format,
    /// The file to write; one that is there is replaced
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Write the header alone, and a hole of the right size for the weights: enough for inspect and explain
    #[arg(long)]
    header_only: bool,
    /// Seed of the weights
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shape {
    /// For tests: 1.8 million weights
    Tiny,
    /// Llama 3.2 1B
    #[value(name = "1b")]
    B1,
    /// Llama 3.2 3B
    #[value(name = "3b")]
    B3,
    /// Llama 3.1 8B
    #[value(name = "8b")]
    B8,
}

struct Numbers {
    name: &'static str,
    blocks: u32,
    embedding: u32,
    heads: u32,
    kv_heads: u32,
    head_size: u32,
    feed_forward: u32,
    vocab: u32,
    context: u32,
    /// The embedding is the output head.
    tied: bool,
}

impl Shape {
    #[rustfmt::skip] // a table
    fn numbers(self) -> Numbers {
        let (name, blocks, embedding, heads, kv_heads, head_size, feed_forward, vocab, context, tied) = match self {
            Shape::Tiny => ("tiny",          2,  256,  4, 2,  64,   768,   1024,  16384, true),
            Shape::B1 =>   ("Llama 3.2 1B", 16, 2048, 32, 8,  64,  8192, 128256, 131072, true),
            Shape::B3 =>   ("Llama 3.2 3B", 28, 3072, 24, 8, 128,  8192, 128256, 131072, true),
            Shape::B8 =>   ("Llama 3.1 8B", 32, 4096, 32, 8, 128, 14336, 128256, 131072, false),
        };
        Numbers { name, blocks, embedding, heads, kv_heads, head_size, feed_forward, vocab, context, tied }
    }
}

/// Any format, by its name.
fn formats() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(Format::ALL.map(Format::name))
        .try_map(|name| Format::from_name(&name).ok_or("unknown format"))
}

impl Synth {
    pub fn run(self) -> Result<(), Failure> {
        // A rename would put the file in the place of a device, a pipe or a link, too: what a link leads to is not asked.
        let there = self.out.symlink_metadata().ok().map(|there| there.file_type());
        if let Some(kind) = there.filter(|kind| !kind.is_file()) {
            let is = match () {
                () if kind.is_dir() => "a folder",
                () if kind.is_symlink() => "a link: name the file that it leads to",
                () => "no regular file",
            };
            let (expected, got) = ("the name of a file".into(), format!("{}, which is {is}", self.out.display()));
            return Err(Error::Argument { what: "--out".into(), expected, got }.into());
        }
        let numbers = self.shape.numbers();
        let mut writer = Writer::new();
        numbers.set_metadata(&mut writer, self.format);
        // The tensors are those that the engine asks for when it reads this metadata.
        let config = Config::from_gguf(&Gguf::from_bytes(writer.to_bytes()?)?)?;
        let mut tensors = HashMap::new(); // name -> (format, weights)
        for slot in slots(&config) {
            if slot.need == Need::Required || slot.name == "output.weight" && !numbers.tied {
                let format = match slot.role {
                    Role::Vector => Format::F32,
                    Role::Matrix => self.format_of(&slot.name, &numbers),
                };
                writer.tensor_later(&slot.name, &slot.shape, format.tensor_type());
                tensors.insert(slot.name, (format, slot.shape.iter().product::<u64>()));
            }
        }
        let size = writer.size()?;
        let written = replace_with(&self.out, |file| match self.header_only {
            true => {
                let failed = |source| Error::Write { source };
                file.write_all(&writer.header()?).and_then(|()| file.flush()).map_err(failed)?;
                file.get_ref().set_len(size).map_err(failed)
            }
            false => write(&writer, &tensors, file, size, self.seed),
        });
        let what = format!("cannot write {}, {}", self.out.display(), output::bytes(size));
        written.map_err(|error| Context { what, source: error.into() })?;
        output::line(format!("{}, {}", self.out.display(), output::bytes(size)), 0)?;
        Ok(())
    }

    /// Of a matrix. llama.cpp's K_M mixes give the finer format to the first and last eighth of the blocks and to every
    /// third between, which is half of them.
    fn format_of(&self, name: &str, numbers: &Numbers) -> Format {
        let head = if numbers.tied { "token_embd.weight" } else { "output.weight" };
        let block_part = name.strip_prefix("blk.").and_then(|rest| rest.split_once('.'));
        let is_finer = match block_part {
            None => name == head,
            Some((block, part)) => {
                let (b, n) = (block.parse().unwrap_or(0), numbers.blocks);
                let in_finer_block = b < n / 8 || b >= 7 * n / 8 || (b - n / 8) % 3 == 2;
                in_finer_block && matches!(part, "attn_v.weight" | "ffn_down.weight")
            }
        };
        let is_mixed = matches!(self.format, Format::Q4_K | Format::Q5_K);
        if is_mixed && is_finer { Format::Q6_K } else { self.format }
    }
}

impl Numbers {
    fn set_metadata(&self, writer: &mut Writer, format: Format) {
        writer
            .set("general.architecture", "llama")
            .set("general.name", format!("Random weights in the shape of {} ({})", self.name, format.name()))
            .set("llama.block_count", self.blocks)
            .set("llama.context_length", self.context)
            .set("llama.embedding_length", self.embedding)
            .set("llama.feed_forward_length", self.feed_forward)
            .set("llama.attention.head_count", self.heads)
            .set("llama.attention.head_count_kv", self.kv_heads)
            .set("llama.attention.key_length", self.head_size)
            .set("llama.attention.value_length", self.head_size)
            .set("llama.attention.layer_norm_rms_epsilon", 1e-5f32)
            .set("llama.rope.freq_base", 500_000.0f32);
        // A SentencePiece vocabulary: three control tokens, every byte, and words that only count.
        let text = |id: u32| match id {
            0 => "<unk>".into(),
            1 => "<s>".into(),
            2 => "</s>".into(),
            3..259 => format!("<0x{:02X}>", id - 3),
            _ => format!("\u{2581}w{id}"),
        };
        let kind = |id: u32| match id {
            0 => 2,      // unknown
            1 | 2 => 3,  // control
            3..259 => 6, // byte
            _ => 1,      // normal
        };
        let ids = || 0..self.vocab;
        writer
            .set("tokenizer.ggml.model", "llama")
            .set("tokenizer.ggml.tokens", ids().map(text).collect::<Strings>())
            .set("tokenizer.ggml.scores", ids().map(|id| -(id as f32)).collect::<Vec<f32>>())
            .set("tokenizer.ggml.token_type", ids().map(kind).collect::<Vec<i32>>());
    }
}

/// The whole file, with a bar. Norms are ones. A matrix is pieces of a pool of random blocks, each from a random block of
/// the pool to its end: encoding eight thousand million random weights would take minutes, and kernels do not see that
/// blocks recur.
fn write(
    writer: &Writer,
    tensors: &HashMap<String, (Format, u64)>,
    file: &mut BufWriter<File>,
    size: u64,
    seed: u64,
) -> peregrine::Result<()> {
    let mut random = Pcg64::new(seed.into(), 0);
    let mut pools: HashMap<Format, Vec<u8>> = HashMap::new();
    let bar = output::byte_bar("writing");
    bar.set_length(size);
    let mut out = bar.wrap_write(file);
    let written = writer.write_with(&mut out, |name, out| {
        let (format, weights) = tensors[name];
        if format == Format::F32 && name.contains("norm") {
            return (0..weights).try_for_each(|_| out.write_all(&1f32.to_le_bytes()));
        }
        let pool = pools.entry(format).or_insert_with(|| pool(format, &mut random));
        let (block, block_weights) = (format.block_bytes(), format.block_weights());
        let mut left = weights as usize / block_weights * block;
        while left > 0 {
            let start = random.next_u32() as usize % (POOL / block_weights) * block;
            let piece = &pool[start..(start + left).min(pool.len())];
            out.write_all(piece)?;
            left -= piece.len();
        }
        Ok(())
    });
    bar.finish_and_clear();
    written
}

/// Encoded random weights, normal as far as the sum of four random bytes is.
fn pool(format: Format, random: &mut Pcg64) -> Vec<u8> {
    let deviation = (4.0f32 * (256.0 * 256.0 - 1.0) / 12.0).sqrt(); // of the sum of four bytes
    let mut weight = || {
        let sum: i32 = random.next_u32().to_le_bytes().iter().map(|&byte| byte as i32).sum();
        (sum - 510) as f32 * (DEVIATION / deviation)
    };
    let weights: Vec<f32> = (0..POOL).map(|_| weight()).collect();
    let mut bytes = Vec::new();
    format.encode(&weights, &mut bytes);
    bytes
}
