//! Tensor: rows of f32 in a GPU buffer. The activations are tensors; weights have a type of their own.

use crate::error::Result;
use crate::gpu::Gpu;

/// Rows of activations, [rows, cols]. Rows lie `stride` floats apart: `cols` rounded up to whole blocks of 32.
/// What lies between stays zero, so kernels work on whole vectors and never ask where a row ends.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub buffer: wgpu::Buffer,
    /// Rows that the buffer holds: the most tokens of a pass.
    pub rows: u32,
    pub cols: u32,
}

impl Tensor {
    pub fn new(gpu: &Gpu, label: &str, rows: u32, cols: u32) -> Result<Tensor> {
        let stride = cols.next_multiple_of(32);
        let buffer = gpu.buffer(label, rows as u64 * stride as u64 * 4)?;
        Ok(Tensor { buffer, rows, cols })
    }

    /// Floats from one row to the next.
    pub fn stride(&self) -> u32 {
        self.cols.next_multiple_of(32)
    }

    /// Fills the first rows. `data` is [rows, cols] without gaps.
    pub fn write(&self, gpu: &Gpu, data: &[f32]) -> Result<()> {
        let padding = vec![0.0f32; (self.stride() - self.cols) as usize];
        gpu.upload(
            &self.buffer,
            data.chunks(self.cols as usize).flat_map(|row| [bytemuck::cast_slice(row), bytemuck::cast_slice(&padding)]),
        )
    }

    /// Reads the first `rows` rows: [rows, cols] without gaps.
    pub async fn read(&self, gpu: &Gpu, rows: u32) -> Result<Vec<f32>> {
        let stride = self.stride() as usize;
        let bytes = gpu.read(&self.buffer, 0, rows as u64 * stride as u64 * 4).await?;
        let floats: Vec<f32> = bytemuck::pod_collect_to_vec(&bytes);
        Ok(floats.chunks(stride).flat_map(|row| &row[..self.cols as usize]).copied().collect())
    }
}
