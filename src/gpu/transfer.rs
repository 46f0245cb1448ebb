//! Bytes to the GPU in pieces, and back.

use super::Gpu;
use crate::error::{Error, Result};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Staging memory that an upload may hold at once: two pieces.
const PIECE: usize = 16 << 20;
const PIECES_IN_FLIGHT: usize = 2;

impl Gpu {
    /// A zeroed storage buffer, its size rounded up to 16 bytes.
    pub fn buffer(&self, label: &str, bytes: u64) -> Result<wgpu::Buffer> {
        let size = bytes.max(16).next_multiple_of(16);
        let most = self.max_binding();
        if size > most {
            return Err(Error::Limit {
                what: label.into(),
                needed: size,
                limit: "max_storage_buffer_binding_size",
                gpu: self.card().name.clone(),
                allowed: most,
                hint: "Choose a smaller context or a smaller model".into(),
            });
        }
        self.inner.asked.fetch_add(size, Ordering::Relaxed);
        let size = if self.is_outline() { 16 } else { size };
        let usage = wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
        let (buffer, error) = self.scoped(wgpu::ErrorFilter::OutOfMemory, |device| {
            let label = Some(label);
            device.create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
        });
        match error {
            Some(error) => {
                let message = format!("{size} bytes could not be allocated: {error}");
                Err(Error::Gpu { what: label.into(), message })
            }
            None => Ok(buffer),
        }
    }

    /// Makes something and catches its error of a kind. A browser tells errors later: there [`Gpu::check`] gives them.
    pub(crate) fn scoped<T>(
        &self,
        filter: wgpu::ErrorFilter,
        make: impl FnOnce(&wgpu::Device) -> T,
    ) -> (T, Option<wgpu::Error>) {
        if cfg!(target_arch = "wasm32") {
            return (make(self.device()), None);
        }
        let scope = self.device().push_error_scope(filter);
        let made = make(self.device());
        (made, now(scope.pop()).flatten())
    }

    /// Writes a stream of chunks one after another from the buffer's start, without holding more than
    /// 32 MiB of staging memory. Chunks may have any length.
    pub fn upload<'a>(&self, buffer: &wgpu::Buffer, chunks: impl IntoIterator<Item = &'a [u8]>) -> Result<()> {
        let mut writer = self.writer(buffer);
        for chunk in chunks {
            writer.push(chunk)?;
        }
        writer.finish()
    }

    /// Writes chunks from the buffer's start on, as they come.
    pub(crate) fn writer<'a>(&'a self, buffer: &'a wgpu::Buffer) -> Writer<'a> {
        Writer { gpu: self, buffer, at: 0, carry: Vec::new() }
    }

    /// A buffer that the GPU copies into and we map, again and again.
    pub(crate) fn staging(&self, label: &str, size: u64) -> wgpu::Buffer {
        let usage = wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST;
        let label = Some(label);
        self.device().create_buffer(&wgpu::BufferDescriptor { label, size, usage, mapped_at_creation: false })
    }

    /// Reads bytes back; waits until the GPU has done all that was submitted.
    pub async fn read(&self, buffer: &wgpu::Buffer, offset: u64, bytes: u64) -> Result<Vec<u8>> {
        let size = bytes.next_multiple_of(4);
        let staging = self.staging("read back", size);
        let mut encoder = self.device().create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        encoder.copy_buffer_to_buffer(buffer, offset, &staging, 0, size);
        self.queue().submit([encoder.finish()]);
        let mut data = self.map(&staging, size).await?;
        data.truncate(bytes as usize);
        Ok(data)
    }

    /// Maps a staging buffer that the queue will fill, copies it out and unmaps it.
    pub async fn map(&self, staging: &wgpu::Buffer, size: u64) -> Result<Vec<u8>> {
        Mapping::begin(staging, size, None).bytes(self).await
    }

    /// In a browser: waits until what was written has been taken, if that is much; else it would pile up in memory. Natively
    /// writing waits by itself.
    pub(crate) async fn keep_pace(&self) -> Result<()> {
        #[cfg(target_arch = "wasm32")]
        if self.inner.staged.load(Ordering::Relaxed) >= (PIECES_IN_FLIGHT * PIECE) as u64 {
            self.inner.staged.store(0, Ordering::Relaxed);
            self.work_done().await?;
        }
        self.check()
    }

    /// Waits until the GPU has done all that was submitted, and lets a page's other work go on meanwhile.
    pub async fn work_done(&self) -> Result<()> {
        let done = Signal::default();
        let signal = done.clone();
        self.queue().on_submitted_work_done(move || signal.set(true));
        self.wait()?;
        done.await;
        self.check()
    }

    /// Waits for the queue on native devices; a browser does this by itself.
    pub fn wait(&self) -> Result<()> {
        self.wait_for(None)
    }

    /// Waits until the queue has done one submission, or all.
    fn wait_for(&self, submission_index: Option<wgpu::SubmissionIndex>) -> Result<()> {
        // A finite wait: some software drivers hang on an endless one.
        let timeout = Some(std::time::Duration::from_secs(600));
        let polled = self.device().poll(wgpu::PollType::Wait { submission_index, timeout });
        self.check()?;
        polled.map(|_| ()).map_err(|e| Error::Gpu { what: "waiting for the GPU".into(), message: e.to_string() })
    }
}

/// A staging buffer on its way to us.
struct Mapping {
    buffer: wgpu::Buffer,
    size: u64,
    /// The submission that fills it; None: whatever was submitted.
    after: Option<wgpu::SubmissionIndex>,
    done: Signal,
}

impl Mapping {
    fn begin(buffer: &wgpu::Buffer, size: u64, after: Option<wgpu::SubmissionIndex>) -> Mapping {
        let done = Signal::default();
        let signal = done.clone();
        buffer.map_async(wgpu::MapMode::Read, 0..size, move |result| signal.set(result.is_ok()));
        Mapping { buffer: buffer.clone(), size, after, done }
    }

    /// Waits, copies the bytes out and unmaps the buffer.
    async fn bytes(&self, gpu: &Gpu) -> Result<Vec<u8>> {
        gpu.wait_for(self.after.clone())?;
        let mapped = self.done.clone().await;
        gpu.check()?;
        let view = mapped.then(|| self.buffer.get_mapped_range(0..self.size)).and_then(|view| view.ok());
        let Some(view) = view else {
            #[cfg(target_arch = "wasm32")]
            for _ in 0..10 {
                crate::clock::pause(20).await; // a lost device is told later than what it made fail
                gpu.check()?;
            }
            return Err(Error::Gpu { what: "read back".into(), message: "the buffer could not be mapped".into() });
        };
        let data = view.to_vec();
        drop(view);
        self.buffer.unmap();
        Ok(data)
    }
}

/// Small results of several submissions on their way back at once, through staging buffers that take turns.
pub(crate) struct ReadBacks {
    free: Vec<wgpu::Buffer>,
    /// The oldest first.
    under_way: VecDeque<Mapping>,
}

impl ReadBacks {
    /// For up to `most` results of `size` bytes.
    pub fn new(gpu: &Gpu, label: &str, size: u64, most: usize) -> ReadBacks {
        let free = (0..most).map(|_| gpu.staging(label, size)).collect();
        ReadBacks { free, under_way: VecDeque::new() }
    }

    pub fn len(&self) -> usize {
        self.under_way.len()
    }

    /// Submits what was recorded, and after it the copy of `from`, whose bytes [`ReadBacks::take`] will give.
    pub fn submit(&mut self, gpu: &Gpu, mut encoder: wgpu::CommandEncoder, from: &wgpu::Buffer) {
        let Some(staging) = self.free.pop() else { unreachable!("more results under way than there are buffers") };
        encoder.copy_buffer_to_buffer(from, 0, &staging, 0, staging.size());
        let after = gpu.queue().submit([encoder.finish()]);
        self.under_way.push_back(Mapping::begin(&staging, staging.size(), Some(after)));
    }

    /// The bytes of the oldest submission under way; there must be one. Waits for no later one.
    pub async fn take(&mut self, gpu: &Gpu) -> Result<Vec<u8>> {
        let Some(oldest) = self.under_way.front() else { unreachable!("no result is under way") };
        let bytes = oldest.bytes(gpu).await;
        self.free.extend(self.under_way.pop_front().map(|oldest| oldest.buffer));
        bytes
    }

    /// Forgets what is under way.
    pub fn clear(&mut self) {
        for Mapping { buffer, .. } in self.under_way.drain(..) {
            buffer.unmap();
            self.free.push(buffer);
        }
    }
}

/// See [`Gpu::writer`].
pub(crate) struct Writer<'a> {
    gpu: &'a Gpu,
    buffer: &'a wgpu::Buffer,
    at: u64,
    /// Up to three bytes that did not fill a word yet.
    carry: Vec<u8>,
}

impl Writer<'_> {
    pub fn push(&mut self, mut chunk: &[u8]) -> Result<()> {
        if !self.carry.is_empty() {
            let take = chunk.len().min(4 - self.carry.len());
            self.carry.extend_from_slice(&chunk[..take]);
            chunk = &chunk[take..];
            if self.carry.len() == 4 {
                let word = std::mem::take(&mut self.carry);
                self.write(&word)?;
            }
        }
        let whole = chunk.len() / 4 * 4;
        for piece in chunk[..whole].chunks(PIECE) {
            self.write(piece)?;
        }
        self.carry.extend_from_slice(&chunk[whole..]);
        Ok(())
    }

    fn write(&mut self, piece: &[u8]) -> Result<()> {
        if self.gpu.is_outline() {
            return Ok(());
        }
        self.gpu.queue().write_buffer(self.buffer, self.at, piece);
        self.at += piece.len() as u64;
        let staged = self.gpu.inner.staged.fetch_add(piece.len() as u64, Ordering::Relaxed);
        if staged >= (PIECES_IN_FLIGHT * PIECE) as u64 && cfg!(not(target_arch = "wasm32")) {
            self.gpu.inner.staged.store(0, Ordering::Relaxed);
            self.gpu.queue().submit([]);
            self.gpu.wait()?;
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<()> {
        if !self.carry.is_empty() {
            let mut word = std::mem::take(&mut self.carry);
            word.resize(4, 0);
            self.write(&word)?;
        }
        Ok(())
    }
}

/// A future that a callback completes.
#[derive(Clone, Default)]
struct Signal(Arc<Mutex<(Option<bool>, Option<Waker>)>>);

impl Signal {
    fn set(&self, value: bool) {
        let mut state = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        state.0 = Some(value);
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

impl Future for Signal {
    type Output = bool;
    fn poll(self: Pin<&mut Self>, context: &mut Context) -> Poll<bool> {
        let mut state = self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        match state.0 {
            Some(value) => Poll::Ready(value),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The future's value if it is there already: native error scopes are, a browser's are not.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}
