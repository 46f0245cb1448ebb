//! Tensor: rows of activations in a GPU buffer. Weights have a type of their own.

use crate::error::Result;
use crate::gpu::Gpu;

/// Words of a block of 32 activations in bytes: eight words of high bytes, eight of low ones, scale, scale * sum, two unused.
const BLOCK_WORDS: u32 = 20;

/// How activations lie in the buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    F32,
    /// Two signed bytes each, with a scale for every block of 32: shaders/operand/bytes.wgsl.
    Bytes,
}

/// Rows of activations, [rows, cols]. Rows lie `stride` words apart: `cols` rounded up to whole blocks of 32.
/// What lies between stays zero, so kernels work on whole vectors and never ask where a row ends.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub buffer: wgpu::Buffer,
    /// Rows that the buffer holds: the most tokens of a pass.
    pub rows: u32,
    pub cols: u32,
    pub element: Element,
}

impl Tensor {
    /// Rows of f32.
    pub fn new(gpu: &Gpu, label: &str, rows: u32, cols: u32) -> Result<Tensor> {
        Tensor::of(gpu, label, rows, cols, Element::F32)
    }

    pub fn of(gpu: &Gpu, label: &str, rows: u32, cols: u32, element: Element) -> Result<Tensor> {
        let words = rows as u64 * stride(cols, element) as u64;
        Ok(Tensor { buffer: gpu.buffer(label, words * 4)?, rows, cols, element })
    }

    /// Words (floats, if it is of f32) from one row to the next.
    pub fn stride(&self) -> u32 {
        stride(self.cols, self.element)
    }

    /// Fills the first rows. `data` is [rows, cols] without gaps; only for f32.
    pub fn write(&self, gpu: &Gpu, data: &[f32]) -> Result<()> {
        assert!(self.element == Element::F32, "only f32 tensors are written from here");
        let padding = vec![0.0f32; (self.stride() - self.cols) as usize];
        gpu.upload(
            &self.buffer,
            data.chunks(self.cols as usize).flat_map(|row| [bytemuck::cast_slice(row), bytemuck::cast_slice(&padding)]),
        )
    }

    /// Reads the first `rows` rows: [rows, cols] without gaps, as f32.
    pub async fn read(&self, gpu: &Gpu, rows: u32) -> Result<Vec<f32>> {
        let stride = self.stride() as usize;
        let bytes = gpu.read(&self.buffer, 0, rows as u64 * stride as u64 * 4).await?;
        let cols = self.cols as usize;
        Ok(match self.element {
            Element::F32 => {
                let floats: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
                floats.chunks(stride).flat_map(|row| &row[..cols]).copied().collect()
            }
            Element::Bytes => {
                let block = BLOCK_WORDS as usize * 4;
                let blocks = bytes.chunks(stride * 4).flat_map(|row| row.chunks(block).enumerate());
                blocks
                    .flat_map(|(i, block)| {
                        let scale = f32::from_le_bytes([block[64], block[65], block[66], block[67]]);
                        let values = block[..(cols - i * 32).min(32)].iter().zip(&block[32..64]);
                        values.map(move |(&high, &low)| (high as i8 as f32 + low as i8 as f32 / 254.0) * scale)
                    })
                    .collect()
            }
        })
    }
}

fn stride(cols: u32, element: Element) -> u32 {
    match element {
        Element::F32 => cols.next_multiple_of(32),
        Element::Bytes => cols.div_ceil(32) * BLOCK_WORDS,
    }
}
