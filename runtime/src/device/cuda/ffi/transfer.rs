//! Bytes between host and device, through pinned memory.
//!
//! [`Uploads`] is a ring of chunks: a chunk is filled again once the event after its last copy has
//! happened, so the host copies into one while the device copies out of another. [`Downloads`]
//! collects any number of parts and waits once; [`Readbacks`] are parts whose wait comes later, and
//! stops nothing that was asked after them.

use super::Gpu;
use super::memory::{Memory, Pinned};
use crate::device::cuda::error::CudaError;
use cudarc::driver::{result, sys};
use std::ops::Range;
use std::sync::Arc;

/// Chunks of the ring, and bytes of each.
const CHUNKS: usize = 4;
const CHUNK_BYTES: usize = 4 << 20;
/// Bytes that come back in one go.
const AREA_BYTES: usize = 4 << 20;
/// What the parts of a chunk are aligned to.
const ALIGN: usize = 64;

/// Numbers whose bytes may be looked at and set freely.
pub(in crate::device::cuda) trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for i32 {}
impl Plain for i64 {}
impl Plain for u32 {}
impl Plain for u64 {}
impl Plain for u8 {}

/// The bytes of some numbers, as they lie.
pub(in crate::device::cuda) fn bytes_of<T: Plain>(values: &[T]) -> &[u8] {
    // SAFETY: `Plain` is implemented for numbers alone, which have no padding, and bytes need no
    // alignment; the slice borrows `values`.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// The bytes of some numbers, to set.
pub(in crate::device::cuda) fn bytes_of_mut<T: Plain>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: as in `bytes_of`, and every pattern of bits is a number.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Host to device.
#[derive(Debug)]
pub(in crate::device::cuda) struct Uploads {
    gpu: Arc<Gpu>,
    chunks: Vec<Chunk>,
    current: usize,
    /// Bytes of the current chunk that copies may still read.
    used: usize,
}

#[derive(Debug)]
struct Chunk {
    pinned: Pinned,
    /// Follows the last copy out of the chunk.
    event: Event,
}

impl Uploads {
    pub(in crate::device::cuda) fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let mut chunks = Vec::with_capacity(CHUNKS);
        for _ in 0..CHUNKS {
            let pinned = Pinned::zeroed(gpu, CHUNK_BYTES)?;
            chunks.push(Chunk { pinned, event: Event::new(gpu)? });
        }
        Ok(Self { gpu: gpu.clone(), chunks, current: 0, used: 0 })
    }

    /// Copies `bytes` to place `at` of `to`. They may change as soon as this returns.
    pub(in crate::device::cuda) fn write(
        &mut self,
        (to, at): (&Memory, usize),
        bytes: &[u8],
    ) -> Result<(), CudaError> {
        let mut at = at;
        let mut rest = bytes;
        while !rest.is_empty() {
            if self.used == CHUNK_BYTES {
                self.next_chunk()?;
            }
            let (now, later) = rest.split_at(rest.len().min(CHUNK_BYTES - self.used));
            let part = self.used..self.used + now.len();
            let pinned = &mut self.chunks[self.current].pinned;
            pinned.part_mut(part.clone()).copy_from_slice(now);
            self.used = part.end.next_multiple_of(ALIGN).min(CHUNK_BYTES);
            let (address, len) = to.place(at..at + now.len());
            let source = self.chunks[self.current].pinned.part(part);
            self.gpu.call("cuMemcpyHtoDAsync", || {
                // SAFETY: `place` checked the target, which is given back in stream order. The source
                // is pinned, and no part of a chunk is written again before the event that follows
                // its copies (`next_chunk`).
                unsafe { result::memcpy_htod_async(address, source, self.gpu.stream) }
            })?;
            debug_assert_eq!(len, now.len());
            at += now.len();
            rest = later;
        }
        Ok(())
    }

    /// Goes to the next chunk, when the copies out of it are done.
    fn next_chunk(&mut self) -> Result<(), CudaError> {
        self.chunks[self.current].event.record()?;
        self.current = (self.current + 1) % self.chunks.len();
        self.used = 0;
        self.chunks[self.current].event.wait()
    }
}

/// Where in which memory, and where to.
pub(in crate::device::cuda) type Reader<'a> = (&'a Memory, usize, &'a mut [u8]);

/// Device to host.
#[derive(Debug)]
pub(in crate::device::cuda) struct Downloads {
    gpu: Arc<Gpu>,
    area: Pinned,
    /// Copies on their way: the part of the area, and whose it is.
    pending: Vec<Pending>,
}

#[derive(Debug)]
struct Pending {
    area: Range<usize>,
    reader: usize,
    at: usize,
}

impl Downloads {
    pub(in crate::device::cuda) fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        let area = Pinned::zeroed(gpu, AREA_BYTES)?;
        Ok(Self { gpu: gpu.clone(), area, pending: Vec::new() })
    }

    /// Fills each reader from its place in device memory, after all that was launched so far.
    pub(in crate::device::cuda) fn read(
        &mut self,
        readers: &mut [Reader<'_>],
    ) -> Result<(), CudaError> {
        self.pending.clear();
        let mut used = 0;
        for reader in 0..readers.len() {
            let mut at = 0;
            while at < readers[reader].2.len() {
                if used == self.area.bytes() {
                    self.finish(readers)?;
                    used = 0;
                }
                let (memory, from, target) = &readers[reader];
                let len = (target.len() - at).min(self.area.bytes() - used);
                download(&self.gpu, (memory, from + at), self.area.part_mut(used..used + len))?;
                self.pending.push(Pending { area: used..used + len, reader, at });
                used = (used + len).next_multiple_of(ALIGN).min(self.area.bytes());
                at += len;
            }
        }
        self.finish(readers)
    }

    /// Waits, and hands out what came.
    fn finish(&mut self, readers: &mut [Reader<'_>]) -> Result<(), CudaError> {
        self.gpu.synchronize()?;
        for Pending { area, reader, at } in self.pending.drain(..) {
            let len = area.len();
            readers[reader].2[at..at + len].copy_from_slice(self.area.part(area));
        }
        Ok(())
    }
}

/// Least pinned memory of a read that is waited for later.
const READBACK_BYTES: usize = 64 << 10;

/// Device to host, waited for later: each read has pinned memory of its own and an event after its
/// last copy, so finishing it waits for that and for nothing that was asked since.
#[derive(Debug)]
pub(in crate::device::cuda) struct Readbacks {
    gpu: Arc<Gpu>,
    slots: Vec<Slot>,
    /// Slots without a read under way.
    free: Vec<usize>,
    /// Reads started so far, and the last of them that is known to be done.
    started: u64,
    done: u64,
}

#[derive(Debug)]
struct Slot {
    pinned: Pinned,
    event: Event,
    parts: Vec<Range<usize>>,
    /// Which read it holds, counted from 1.
    number: u64,
}

/// Where in which memory, and how many bytes.
pub(in crate::device::cuda) type Wanted<'a> = (&'a Memory, usize, usize);

impl Readbacks {
    pub(in crate::device::cuda) fn new(gpu: &Arc<Gpu>) -> Self {
        Self { gpu: gpu.clone(), slots: Vec::new(), free: Vec::new(), started: 0, done: 0 }
    }

    /// Starts to read these parts as they are after all that was launched so far; the slot they
    /// come to.
    pub(in crate::device::cuda) fn start(
        &mut self,
        wanted: &[Wanted<'_>],
    ) -> Result<usize, CudaError> {
        let padded = wanted.iter().map(|(_, _, len)| len.next_multiple_of(ALIGN));
        let index = self.take(padded.sum())?;
        self.started += 1;
        let slot = &mut self.slots[index];
        slot.number = self.started;
        slot.parts.clear();
        let mut at = 0;
        for &(from, start, len) in wanted {
            let part = at..at + len;
            if len > 0 {
                download(&self.gpu, (from, start), slot.pinned.part_mut(part.clone()))?;
            }
            at += len.next_multiple_of(ALIGN);
            slot.parts.push(part);
        }
        slot.event.record()?;
        Ok(index)
    }

    /// Bytes of the last part of the read in that slot.
    pub(in crate::device::cuda) fn last_len(&self, index: usize) -> usize {
        self.slots[index].parts.last().map_or(0, Range::len)
    }

    /// Waits for the read in that slot, unless a later one has been waited for, and hands out its
    /// parts. The slot may be taken by the next read.
    pub(in crate::device::cuda) fn finish<'a>(
        &mut self,
        index: usize,
        targets: impl IntoIterator<Item = &'a mut [u8]>,
    ) -> Result<(), CudaError> {
        let slot = &self.slots[index];
        if self.done < slot.number {
            slot.event.wait()?;
            self.done = slot.number;
        }
        // A broken device has left nothing worth reading.
        self.gpu.alive()?;
        for (part, target) in slot.parts.iter().zip(targets) {
            target.copy_from_slice(slot.pinned.part(part.clone()));
        }
        self.free.push(index);
        Ok(())
    }

    /// A slot without a read, of at least that many bytes.
    fn take(&mut self, bytes: usize) -> Result<usize, CudaError> {
        let size = bytes.next_power_of_two().max(READBACK_BYTES);
        let Some(index) = self.free.pop() else {
            let pinned = Pinned::zeroed(&self.gpu, size)?;
            let event = Event::new(&self.gpu)?;
            self.slots.push(Slot { pinned, event, parts: Vec::new(), number: 0 });
            return Ok(self.slots.len() - 1);
        };
        if self.slots[index].pinned.bytes() < size {
            self.slots[index].pinned = Pinned::zeroed(&self.gpu, size)?;
        }
        Ok(index)
    }
}

/// Lets the device copy from place `at` of `from` to pinned memory, which the caller does not read
/// before it has waited.
fn download(gpu: &Gpu, (from, at): (&Memory, usize), target: &mut [u8]) -> Result<(), CudaError> {
    let (address, _) = from.place(at..at + target.len());
    gpu.call("cuMemcpyDtoHAsync", || {
        // SAFETY: `place` checked the source, which is given back in stream order. The target is a
        // part of `Pinned`, which outlives its copies (see its drop), and of which `Downloads` and
        // `Readbacks`, the only callers, read nothing before they have waited.
        unsafe { result::memcpy_dtoh_async(target, address, gpu.stream) }
    })
}

/// A point on the stream.
#[derive(Debug)]
pub(in crate::device::cuda) struct Event {
    gpu: Arc<Gpu>,
    raw: sys::CUevent,
    is_recorded: bool,
}

// SAFETY: as for `Gpu`: a handle that any thread with the context may use.
unsafe impl Send for Event {}

impl Event {
    fn new(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Self::with_flags(gpu, sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
    }

    /// One that knows when it happened.
    pub(in crate::device::cuda) fn timed(gpu: &Arc<Gpu>) -> Result<Self, CudaError> {
        Self::with_flags(gpu, sys::CUevent_flags::CU_EVENT_DEFAULT)
    }

    fn with_flags(gpu: &Arc<Gpu>, flags: sys::CUevent_flags) -> Result<Self, CudaError> {
        let raw = gpu.call("cuEventCreate", || result::event::create(flags))?;
        Ok(Self { gpu: gpu.clone(), raw, is_recorded: false })
    }

    /// Lets it happen when the stream gets here.
    pub(in crate::device::cuda) fn record(&mut self) -> Result<(), CudaError> {
        self.is_recorded = true;
        self.gpu.call("cuEventRecord", || {
            // SAFETY: event and stream are of this context and live as long as `self`.
            unsafe { result::event::record(self.raw, self.gpu.stream) }
        })
    }

    /// Microseconds from `self` to a later one. Both are timed, and the caller has waited for both.
    pub(in crate::device::cuda) fn micros_until(&self, later: &Self) -> Result<f64, CudaError> {
        let millis = self.gpu.call("cuEventElapsedTime", || {
            // SAFETY: both events live as long as their owners, which are borrowed here.
            unsafe { result::event::elapsed(self.raw, later.raw) }
        })?;
        Ok(f64::from(millis) * 1e3)
    }

    /// Waits until it has happened; not at all if it was never recorded.
    fn wait(&self) -> Result<(), CudaError> {
        if !self.is_recorded {
            return Ok(());
        }
        self.gpu.call("cuEventSynchronize", || {
            // SAFETY: the event lives as long as `self`.
            unsafe { result::event::synchronize(self.raw) }
        })
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        self.gpu.release(|| {
            // SAFETY: created by `new`, destroyed once.
            unsafe { result::event::destroy(self.raw) }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_their_bytes() {
        assert_eq!(bytes_of(&[1u32, 0x0203_0405]), [1, 0, 0, 0, 5, 4, 3, 2]);
        let mut values = [0i64; 2];
        bytes_of_mut(&mut values)[8] = 7;
        assert_eq!(values, [0, 7]);
        assert!(bytes_of::<f32>(&[]).is_empty());
    }
}
