//! Weights on the GPU: matrices, quantized as in the file, and vectors (gains, biases) in f32.

use crate::error::Result;
use crate::formats::{Format, layout};
use crate::gguf::{Gguf, TensorInfo};
use crate::gpu::{Gpu, now};
use std::borrow::Cow;
use std::ops::Range;

/// A matrix [rows, cols]. Its rows come from one tensor, or from several that are multiplied with the same x.
pub struct Weight {
    pub name: String,
    pub rows: u32,
    pub cols: u32,
    /// In order of their rows. A part ends where the format changes, or where a binding would be too small.
    pub parts: Vec<Part>,
}

/// Rows of one format. `layout` tells how they lie in the two buffers.
#[derive(Clone)]
pub struct Part {
    pub format: Format,
    pub order: Order,
    pub quants: wgpu::Buffer,
    /// Nothing for plain formats.
    pub scales: wgpu::Buffer,
    pub first_row: u32,
    pub rows: u32,
    /// Rows of the buffers that come before; not 0 in a view of some rows alone.
    pub skip: u32,
    /// That the rows take in both buffers.
    bytes: u64,
}

/// In which order the blocks of 32 weights lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Row by row.
    Rows,
    /// Panels of 32 rows, padded with zeros: the first block of each row, then the second of each.
    Panels,
}

impl Order {
    /// What suits the device: a processor's lanes have neighbouring rows. Super-blocks of eight blocks stay whole.
    fn choose(gpu: &Gpu, format: Format) -> Order {
        let blocks_apart = format.block_weights() <= 32;
        match gpu.profile().lanes && blocks_apart {
            true => Order::Panels,
            false => Order::Rows,
        }
    }

    /// The file that tells a kernel where a row's blocks lie.
    pub fn file(self) -> &'static str {
        match self {
            Order::Rows => "order/rows.wgsl",
            Order::Panels => "order/panels.wgsl",
        }
    }
}

/// A tensor on its way up, as it lies in its file: rows of whole blocks.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    pub format: Format,
    pub rows: u32,
    pub data: Data<'a>,
}

/// Where a tensor's bytes are.
#[derive(Clone, Copy)]
pub enum Data<'a> {
    Here(&'a [u8]),
    In(&'a Gguf, &'a TensorInfo),
}

/// Rows of a part are a multiple of this, but for the last part: a workgroup's rows then lie in one part.
const ROWS_TOGETHER: usize = 64;
/// Rows of a panel.
const PANEL: usize = 32;
/// Bytes of the file that are arranged at a time.
const PIECE: usize = 8 << 20;

impl Weight {
    /// One tensor that is in memory.
    pub fn upload(gpu: &Gpu, name: &str, format: Format, rows: u32, cols: u32, data: &[u8]) -> Result<Weight> {
        at_once(Weight::stacked(gpu, name, cols, &[Source { format, rows, data: Data::Here(data) }]))
    }

    /// The rows of the first tensor, then those of the next.
    pub async fn stacked(gpu: &Gpu, name: &str, cols: u32, sources: &[Source<'_>]) -> Result<Weight> {
        let mut weight = Weight { name: name.into(), rows: 0, cols, parts: Vec::new() };
        for run in sources.chunk_by(|a, b| a.format == b.format) {
            let order = Order::choose(gpu, run[0].format);
            weight.push(gpu, order, &Rows { sources: run, in_turns: false, cols }).await?;
        }
        Ok(weight)
    }

    /// Rows of two tensors of one format in turns: a lane that has row 2i of the one has row 2i + 1 of the other.
    pub async fn alternating(gpu: &Gpu, name: &str, cols: u32, sources: [Source<'_>; 2]) -> Result<Weight> {
        let [a, b] = &sources;
        assert!(a.format == b.format && a.rows == b.rows, "{name}: only equal tensors take turns");
        let mut weight = Weight { name: name.into(), rows: 0, cols, parts: Vec::new() };
        let order = Order::choose(gpu, a.format);
        weight.push(gpu, order, &Rows { sources: &sources, in_turns: true, cols }).await?;
        Ok(weight)
    }

    async fn push(&mut self, gpu: &Gpu, order: Order, rows: &Rows<'_>) -> Result<()> {
        let format = rows.sources[0].format;
        let row_weights = self.cols.next_multiple_of(32) as u64;
        let (quants_of_row, scales_of_row) = layout::stream_bytes(format, row_weights * 2);
        let most = (2 * gpu.max_binding() / quants_of_row.max(scales_of_row)) as usize;
        let rows_of_part = (most / ROWS_TOGETHER * ROWS_TOGETHER).max(most.clamp(1, ROWS_TOGETHER));
        let rows_of_piece = (PIECE / (row_weights as usize * 4)).next_multiple_of(PANEL);
        // a panel lies in one part
        let order = if rows_of_part.is_multiple_of(PANEL) { order } else { Order::Rows };
        for (i, first) in (0..rows.count()).step_by(rows_of_part).enumerate() {
            let part = first..rows.count().min(first + rows_of_part);
            let rows_held = if order == Order::Panels { part.len().next_multiple_of(PANEL) } else { part.len() };
            let (quants_size, scales_size) = layout::stream_bytes(format, row_weights * rows_held as u64);
            let label = if i == 0 { self.name.clone() } else { format!("{}, part {i}", self.name) };
            let quants = gpu.buffer(&label, quants_size)?;
            let scales = gpu.buffer(&format!("{label}, scales"), scales_size)?;
            let (mut to_quants, mut to_scales) = (gpu.writer(&quants), gpu.writer(&scales));
            let (mut quant_bytes, mut scale_bytes, mut blocks) = (Vec::new(), Vec::new(), Vec::new());
            for first in part.clone().step_by(rows_of_piece).filter(|_| !gpu.is_outline()) {
                let read = rows.read(first..part.end.min(first + rows_of_piece)).await?;
                let rows: Vec<&[u8]> = read.rows();
                [&mut quant_bytes, &mut scale_bytes, &mut blocks].into_iter().for_each(Vec::clear);
                let row_bytes = row_weights as usize / format.block_weights() * format.block_bytes();
                match order {
                    Order::Rows => rows.iter().for_each(|row| {
                        blocks.extend_from_slice(row);
                        blocks.resize(blocks.len() + row_bytes - row.len(), 0);
                    }),
                    Order::Panels => {
                        rows.chunks(PANEL).for_each(|rows| push_panel(rows, row_bytes, format, &mut blocks))
                    }
                }
                layout::arrange(format, &blocks, &mut quant_bytes, &mut scale_bytes);
                to_quants.push(&quant_bytes)?;
                to_scales.push(&scale_bytes)?;
                gpu.keep_pace().await?;
            }
            to_quants.finish()?;
            to_scales.finish()?;
            let (first_row, bytes) = (self.rows, quants_size + scales_size);
            self.parts.push(Part { format, order, quants, scales, first_row, rows: part.len() as u32, skip: 0, bytes });
            self.rows += part.len() as u32;
        }
        Ok(())
    }

    /// A matrix that learns: f32, row by row, so that its gradient and moments can be tensors of the same layout.
    /// data [rows, cols].
    pub fn master(gpu: &Gpu, name: &str, cols: u32, data: &[f32]) -> Result<Weight> {
        let rows = data.len() as u32 / cols;
        let source = Source { format: Format::F32, rows, data: Data::Here(bytemuck::cast_slice(data)) };
        at_once(Weight::masters(gpu, name, cols, &[source]))
    }

    /// [`Weight::master`] of the rows of several tensors, one after another, all of them F32.
    pub async fn masters(gpu: &Gpu, name: &str, cols: u32, sources: &[Source<'_>]) -> Result<Weight> {
        assert!(sources.iter().all(|source| source.format == Format::F32), "{name}: masters are F32");
        let mut weight = Weight { name: name.into(), rows: 0, cols, parts: Vec::new() };
        weight.push(gpu, Order::Rows, &Rows { sources, in_turns: false, cols }).await?;
        Ok(weight)
    }

    /// Some rows of the matrix, over the same buffers.
    pub fn rows(&self, first: u32, count: u32) -> Weight {
        let part = |part: &Part| {
            let begin = first.max(part.first_row);
            let end = (first + count).min(part.first_row + part.rows);
            let rows = end.checked_sub(begin).filter(|&rows| rows > 0)?;
            let bytes = part.bytes * rows as u64 / part.rows as u64;
            let skip = part.skip + begin - part.first_row;
            Some(Part { first_row: begin - first, rows, skip, bytes, ..part.clone() })
        };
        let parts = self.parts.iter().filter_map(part).collect();
        Weight { name: self.name.clone(), rows: count, cols: self.cols, parts }
    }

    /// Blocks of 32 weights in a row.
    pub fn blocks(&self) -> u32 {
        self.cols.div_ceil(32)
    }

    /// Bytes that the whole matrix takes on the GPU.
    pub fn bytes(&self) -> u64 {
        self.parts.iter().map(Part::bytes).sum()
    }

    /// Whether every part can be multiplied with activations in bytes.
    pub fn is_quantized(&self) -> bool {
        self.parts.iter().all(|part| part.format.block_weights() > 1)
    }
}

/// Appends up to 32 rows block by block; what is missing of rows and of a row's last block are zeros.
fn push_panel(rows: &[&[u8]], row_bytes: usize, format: Format, blocks: &mut Vec<u8>) {
    let block_bytes = 32 / format.block_weights() * format.block_bytes();
    for at in (0..row_bytes).step_by(block_bytes) {
        for row in rows {
            let block = &row[at..row.len().min(at + block_bytes)];
            blocks.extend_from_slice(block);
            blocks.resize(blocks.len() + block_bytes - block.len(), 0);
        }
        blocks.resize(blocks.len() + (PANEL - rows.len()) * block_bytes, 0);
    }
}

/// The rows of several tensors of one format as those of one matrix.
struct Rows<'a> {
    sources: &'a [Source<'a>],
    /// Two tensors' rows take turns; else one tensor follows another.
    in_turns: bool,
    cols: u32,
}

impl<'a> Rows<'a> {
    fn count(&self) -> usize {
        self.sources.iter().map(|source| source.rows as usize).sum()
    }

    /// A range of rows, wherever they are.
    async fn read(&self, range: Range<usize>) -> Result<Read<'a>> {
        let mut read = Read { spans: Vec::new(), row_bytes: self.sources[0].row_bytes(self.cols), in_turns: None };
        let mut before = 0; // rows of the sources before this one
        for (turn, source) in self.sources.iter().enumerate() {
            let rows = source.rows as usize;
            let own = |row: usize| match self.in_turns {
                true => (row + 1 - turn) / 2,
                false => row.clamp(before, before + rows) - before,
            };
            let (begin, end) = (own(range.start), own(range.end));
            if begin < end || self.in_turns {
                read.spans.push(source.read(begin..end, self.cols).await?);
            }
            before += rows;
        }
        read.in_turns = self.in_turns.then_some(range.start % 2);
        Ok(read)
    }
}

/// Rows that were read: a span of each tensor that has some of them.
struct Read<'a> {
    spans: Vec<Cow<'a, [u8]>>,
    row_bytes: usize,
    /// Where rows take turns, which span has the first.
    in_turns: Option<usize>,
}

impl Read<'_> {
    fn rows(&self) -> Vec<&[u8]> {
        let mut spans: Vec<_> = self.spans.iter().map(|span| span.chunks_exact(self.row_bytes)).collect();
        let Some(first) = self.in_turns else { return spans.into_iter().flatten().collect() };
        (first..).map_while(|turn| spans[turn % 2].next()).collect()
    }
}

impl<'a> Source<'a> {
    fn row_bytes(&self, cols: u32) -> usize {
        cols as usize / self.format.block_weights() * self.format.block_bytes()
    }

    async fn read(&self, rows: Range<usize>, cols: u32) -> Result<Cow<'a, [u8]>> {
        let row_bytes = self.row_bytes(cols);
        match self.data {
            Data::Here(bytes) => Ok(Cow::Borrowed(&bytes[rows.start * row_bytes..rows.end * row_bytes])),
            Data::In(gguf, tensor) => {
                let at = |row: usize| row as u64 * row_bytes as u64; // a browser's usize has 32 bits
                gguf.read(tensor, at(rows.start)..at(rows.end)).await
            }
        }
    }
}

/// The outcome of an upload from memory, which waits for nothing.
fn at_once(upload: impl Future<Output = Result<Weight>>) -> Result<Weight> {
    now(upload).unwrap_or_else(|| unreachable!("bytes in memory are there at once"))
}

impl Part {
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The buffers by the names that the format's shader gives them.
    pub fn buffers(&self) -> Vec<(&'static str, &wgpu::Buffer)> {
        match self.format.block_weights() {
            1 => vec![("quants", &self.quants)],
            _ => vec![("quants", &self.quants), ("scales", &self.scales)],
        }
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
