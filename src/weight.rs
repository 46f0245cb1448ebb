//! Weights on the GPU: matrices in the format of the file, and vectors (gains, biases) in f32.

use crate::error::Result;
use crate::formats::Format;
use crate::gpu::Gpu;

/// A matrix [rows, cols], in its file's format. Rows of F32, F16 and BF16 are padded with zeros to whole blocks of 32;
/// all else lies as in the file. A matrix larger than a binding may be is split by rows.
pub struct Weight {
    pub name: String,
    pub format: Format,
    pub rows: u32,
    pub cols: u32,
    pub shards: Vec<Shard>,
}

/// Rows of a matrix in one buffer.
pub struct Shard {
    pub buffer: wgpu::Buffer,
    pub first_row: u32,
    pub rows: u32,
}

/// Room behind the last block: a read between words takes the next word too.
const OVERREAD: u64 = 16;

impl Weight {
    /// `data` is the tensor as it lies in the file: `rows` rows of whole blocks.
    pub fn upload(gpu: &Gpu, name: &str, format: Format, rows: u32, cols: u32, data: &[u8]) -> Result<Weight> {
        let row_bytes = cols as usize / format.block_weights() * format.block_bytes();
        let padding = vec![0u8; if format.block_weights() == 1 { (cols.next_multiple_of(32) - cols) as usize * format.block_bytes() } else { 0 }];
        let gpu_row_bytes = (row_bytes + padding.len()) as u64;
        let rows_per_shard = ((gpu.max_binding().saturating_sub(OVERREAD)) / gpu_row_bytes.max(1)).clamp(1, rows.max(1) as u64) as usize;
        let mut shards = Vec::new();
        for (i, bytes) in data.chunks(rows_per_shard * row_bytes).enumerate() {
            let rows = (bytes.len() / row_bytes) as u32;
            let label = if rows_per_shard < data.len() / row_bytes { format!("{name} shard {i}") } else { name.into() };
            let buffer = gpu.buffer(&label, rows as u64 * gpu_row_bytes + OVERREAD)?;
            if padding.is_empty() {
                gpu.upload(&buffer, [bytes])?;
            } else {
                gpu.upload(&buffer, bytes.chunks(row_bytes).flat_map(|row| [row, &padding[..]]))?;
            }
            shards.push(Shard { buffer, first_row: (i * rows_per_shard) as u32, rows });
        }
        Ok(Weight { name: name.into(), format, rows, cols, shards })
    }

    /// Blocks of 32 weights in a row.
    pub fn blocks(&self) -> u32 {
        self.cols.div_ceil(32)
    }

    /// Bytes that the whole matrix takes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.shards.iter().map(|shard| shard.buffer.size()).sum()
    }
}

/// f32 numbers, [len], padded with zeros to whole blocks of 32.
pub struct Vector {
    pub name: String,
    pub len: u32,
    pub buffer: wgpu::Buffer,
}

impl Vector {
    pub fn upload(gpu: &Gpu, name: &str, values: &[f32]) -> Result<Vector> {
        let buffer = gpu.buffer(name, values.len().next_multiple_of(32) as u64 * 4)?;
        gpu.upload(&buffer, [bytemuck::cast_slice(values)])?;
        Ok(Vector { name: name.into(), len: values.len() as u32, buffer })
    }
}
