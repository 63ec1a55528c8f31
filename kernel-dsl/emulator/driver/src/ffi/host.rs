//! Host memory and host functions that queued work uses after the call that named them returned.
//!
//! CUDA's contract again: who queues a copy keeps its host memory, and who queues a host function
//! keeps its data, until the stream has got there.

use crate::code::{Code, Outcome, ensure};
use std::cell::Cell;
use std::ffi::c_void;

/// Host memory that a queued copy reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HostSpan {
    address: usize,
    bytes: u64,
}

/// A function of the program, to be called by a stream's thread.
#[derive(Clone, Copy)]
pub(crate) struct HostFn {
    function: unsafe extern "C" fn(*mut c_void),
    data: usize,
}

thread_local! {
    static IN_HOST_FN: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread runs a host function of a stream, which must not call the driver.
pub(crate) fn in_host_fn() -> bool {
    IN_HOST_FN.get()
}

impl HostSpan {
    /// A span that the program named in a call that copies: only such addresses may come here.
    pub(super) fn new(address: usize, bytes: u64) -> Outcome<Self> {
        ensure(address != 0, Code::ERROR_INVALID_VALUE)?;
        let end = usize::try_from(bytes).ok().and_then(|bytes| address.checked_add(bytes));
        end.map(|_| Self { address, bytes }).ok_or(Code::ERROR_INVALID_VALUE)
    }

    pub(crate) fn address(self) -> usize {
        self.address
    }

    pub(crate) fn len(self) -> u64 {
        self.bytes
    }

    fn part(self, offset: u64, bytes: u64) -> Outcome<(usize, usize)> {
        let end = offset.checked_add(bytes).filter(|end| *end <= self.bytes);
        let range =
            end.and_then(|_| Some((usize::try_from(offset).ok()?, usize::try_from(bytes).ok()?)));
        range.ok_or(Code::ERROR_INVALID_VALUE)
    }

    pub(crate) fn read(self, offset: u64, bytes: u64) -> Outcome<Vec<u8>> {
        let (offset, bytes) = self.part(offset, bytes)?;
        let mut copy = vec![0; bytes];
        let from = std::ptr::with_exposed_provenance::<u8>(self.address + offset);
        // SAFETY: `part` held the range to the span, which the program passed to a copy and keeps
        // until its stream has done it; `copy` is new and has `bytes` bytes.
        unsafe { from.copy_to_nonoverlapping(copy.as_mut_ptr(), bytes) };
        Ok(copy)
    }

    pub(crate) fn write(self, offset: u64, data: &[u8]) -> Outcome {
        let (offset, bytes) = self.part(offset, data.len() as u64)?;
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address + offset);
        // SAFETY: `part` held the range to the span, which the program passed to a copy as its
        // destination and keeps until its stream has done it; `data` is ours and no part of it.
        unsafe { to.copy_from_nonoverlapping(data.as_ptr(), bytes) };
        Ok(())
    }
}

impl HostFn {
    pub(super) fn new(function: unsafe extern "C" fn(*mut c_void), data: usize) -> Self {
        Self { function, data }
    }

    pub(crate) fn call(self) {
        IN_HOST_FN.set(true);
        let data = std::ptr::with_exposed_provenance_mut(self.data);
        // SAFETY: the program queued this function to be called with this data, and keeps both
        // until its stream has done so.
        unsafe { (self.function)(data) };
        IN_HOST_FN.set(false);
    }
}
