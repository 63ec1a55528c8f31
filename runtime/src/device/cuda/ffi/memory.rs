//! Device memory that belongs to somebody, and pinned host memory.

use super::Gpu;
use crate::device::cuda::error::CudaError;
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::sys::CUresult;
use std::ffi::c_void;
use std::ops::Range;
use std::sync::Arc;

/// A range of device memory. It is given back in stream order, so what was launched before the drop
/// may still use it.
#[derive(Debug)]
pub(in crate::device::cuda) struct Memory {
    gpu: Arc<Gpu>,
    address: u64,
    bytes: usize,
}

impl Memory {
    /// Zeroed memory for `what`.
    pub(in crate::device::cuda) fn zeroed(
        gpu: &Arc<Gpu>,
        bytes: usize,
        what: &'static str,
    ) -> Result<Self, CudaError> {
        gpu.alive()?;
        // The driver refuses to allocate nothing.
        let size = bytes.max(1);
        let allocate = || {
            gpu.bind()?;
            match gpu.has_pools {
                // SAFETY: the stream lives in `gpu`; the memory is used on it alone.
                true => unsafe { result::malloc_async(gpu.stream, size) },
                // SAFETY: it is zeroed below before anybody reads it.
                false => unsafe { result::malloc_sync(size) },
            }
        };
        let address = allocate().map_err(|error| match error {
            DriverError(CUresult::CUDA_ERROR_OUT_OF_MEMORY) => {
                let (free, total) = gpu.memory();
                gpu.break_with(CudaError::OutOfMemory { what, bytes, free, total })
            }
            other => gpu.break_with(super::named("cuMemAlloc", other)),
        })?;
        let memory = Self { gpu: gpu.clone(), address, bytes };
        memory.zero(0..bytes)?;
        Ok(memory)
    }

    /// Where it starts, as kernels take it.
    pub(in crate::device::cuda) fn address(&self) -> u64 {
        self.address
    }

    /// How much it is.
    pub(in crate::device::cuda) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Zeroes a part.
    pub(in crate::device::cuda) fn zero(&self, part: Range<usize>) -> Result<(), CudaError> {
        let (at, bytes) = self.place(part);
        if bytes == 0 {
            return Ok(());
        }
        self.gpu.call("cuMemsetD8Async", || {
            // SAFETY: `place` checked that the bytes are inside this allocation, which is given back
            // in stream order and so after this.
            unsafe { result::memset_d8_async(at, 0, bytes, self.gpu.stream) }
        })
    }

    /// Copies `bytes` from place `from` of another allocation to place `to` of this one.
    pub(in crate::device::cuda) fn copy(
        &self,
        to: usize,
        (other, from): (&Self, usize),
        bytes: usize,
    ) -> Result<(), CudaError> {
        let (to, _) = self.place(to..to + bytes);
        let (from, _) = other.place(from..from + bytes);
        self.gpu.call("cuMemcpyDtoDAsync", || {
            // SAFETY: `place` checked both sides, which are given back in stream order.
            unsafe { result::memcpy_dtod_async(to, from, bytes, self.gpu.stream) }
        })
    }

    /// Address and length of a part.
    ///
    /// # Panics
    /// If it is not inside.
    pub(super) fn place(&self, part: Range<usize>) -> (u64, usize) {
        let inside = part.start <= part.end && part.end <= self.bytes;
        assert!(inside, "bytes {part:?} of an allocation of {}", self.bytes);
        (self.address + part.start as u64, part.end - part.start)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.gpu.release(|| match self.gpu.has_pools {
            // SAFETY: allocated by `zeroed` in the same way, and freed once.
            true => unsafe { result::free_async(self.address, self.gpu.stream) },
            // SAFETY: as above; this waits for what still uses the memory.
            false => unsafe { result::free_sync(self.address) },
        });
    }
}

/// Host memory that the device copies to and from by itself.
#[derive(Debug)]
pub(super) struct Pinned {
    gpu: Arc<Gpu>,
    address: *mut c_void,
    bytes: usize,
}

// SAFETY: plain memory with one owner; no thread keeps a reference to it between calls.
unsafe impl Send for Pinned {}

impl Pinned {
    /// Zeroed pinned memory.
    pub(super) fn zeroed(gpu: &Arc<Gpu>, bytes: usize) -> Result<Self, CudaError> {
        let address = gpu.call("cuMemHostAlloc", || {
            // SAFETY: it is given back in `drop`, and written below before anybody reads it.
            unsafe { result::malloc_host(bytes, 0) }
        })?;
        // SAFETY: the driver has just given us these bytes, and nobody else knows of them.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, bytes) };
        Ok(Self { gpu: gpu.clone(), address, bytes })
    }

    /// How much it is.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// A part of it, to read. The caller has waited for copies that write there.
    pub(super) fn part(&self, part: Range<usize>) -> &[u8] {
        assert!(part.start <= part.end && part.end <= self.bytes, "a part of pinned memory");
        // SAFETY: checked to be inside, and initialized.
        let start = unsafe { self.address.cast::<u8>().add(part.start) };
        // SAFETY: initialized bytes of ours; `Uploads`, `Downloads` and `Readbacks`, the only users,
        // wait for the copies that touch a part before they look at it.
        unsafe { std::slice::from_raw_parts(start, part.len()) }
    }

    /// A part of it, to write. The caller has waited for copies that use it.
    pub(super) fn part_mut(&mut self, part: Range<usize>) -> &mut [u8] {
        assert!(part.start <= part.end && part.end <= self.bytes, "a part of pinned memory");
        // SAFETY: checked to be inside.
        let start = unsafe { self.address.cast::<u8>().add(part.start) };
        // SAFETY: as in `part`, and `self` is borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(start, part.len()) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // Copies on the stream may still use it.
        self.gpu.drain();
        self.gpu.release(|| {
            // SAFETY: allocated by `zeroed`, and freed once, after all copies ended.
            unsafe { result::free_host(self.address) }
        });
    }
}
