//! Host memory that was allocated or registered with the driver: copies to and from it are
//! asynchronous, those of other memory are staged or waited for.

use crate::code::{Code, Outcome, ensure};
use crate::handles::lock;
use std::collections::BTreeMap;
use std::sync::Mutex;

/// What new pinned memory holds: nothing that a program may rely on.
const FRESH: u8 = 0xa5;
const PAGE: usize = 4096;

#[repr(align(4096))]
#[derive(Clone)]
struct Page(#[expect(dead_code, reason = "only the program reads it")] [u8; PAGE]);

struct Range {
    bytes: usize,
    flags: u32,
    /// The memory itself, if it was allocated here.
    pages: Option<Vec<Page>>,
}

/// All pinned memory, by where it begins.
#[derive(Default)]
pub(crate) struct Pinned {
    ranges: Mutex<BTreeMap<usize, Range>>,
}

impl Pinned {
    pub(crate) fn allocate(&self, bytes: usize, flags: u32) -> Outcome<usize> {
        ensure(bytes > 0, Code::ERROR_INVALID_VALUE)?;
        let mut pages = Vec::new();
        let count = bytes.div_ceil(PAGE);
        pages.try_reserve_exact(count).map_err(|_| Code::ERROR_OUT_OF_MEMORY)?;
        pages.resize(count, Page([FRESH; PAGE]));
        let address = pages.as_mut_ptr().expose_provenance();
        let range = Range { bytes, flags, pages: Some(pages) };
        lock(&self.ranges).insert(address, range);
        Ok(address)
    }

    /// Frees what [`Self::allocate`] gave.
    pub(crate) fn free(&self, address: usize) -> Outcome {
        let mut ranges = lock(&self.ranges);
        let owned = ranges.get(&address).is_some_and(|range| range.pages.is_some());
        ensure(owned, Code::ERROR_INVALID_VALUE)?;
        ranges.remove(&address);
        Ok(())
    }

    pub(crate) fn register(&self, address: usize, bytes: usize, flags: u32) -> Outcome {
        let end = address.checked_add(bytes).ok_or(Code::ERROR_INVALID_VALUE)?;
        ensure(address != 0 && bytes > 0, Code::ERROR_INVALID_VALUE)?;
        let mut ranges = lock(&self.ranges);
        let before = ranges.range(..end).next_back();
        let overlaps = before.is_some_and(|(start, range)| start + range.bytes > address);
        ensure(!overlaps, Code::ERROR_HOST_MEMORY_ALREADY_REGISTERED)?;
        ranges.insert(address, Range { bytes, flags, pages: None });
        Ok(())
    }

    pub(crate) fn unregister(&self, address: usize) -> Outcome {
        let mut ranges = lock(&self.ranges);
        let ours = ranges.get(&address).is_some_and(|range| range.pages.is_none());
        ensure(ours, Code::ERROR_HOST_MEMORY_NOT_REGISTERED)?;
        ranges.remove(&address);
        Ok(())
    }

    /// Start, size and flags of the pinned memory that holds all of `bytes` from `address` on.
    pub(crate) fn find(&self, address: usize, bytes: u64) -> Option<(usize, usize, u32)> {
        let ranges = lock(&self.ranges);
        let (start, range) = ranges.range(..=address).next_back()?;
        let offset = address - start;
        let fits = offset < range.bytes && bytes <= (range.bytes - offset) as u64;
        fits.then_some((*start, range.bytes, range.flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_pinned_from_allocation_to_free() {
        let pinned = Pinned::default();
        let address = pinned.allocate(5000, 3).unwrap();
        assert_eq!(pinned.find(address + 10, 4990), Some((address, 5000, 3)));
        assert_eq!(pinned.find(address + 10, 4991), None);
        assert_eq!(pinned.unregister(address), Err(Code::ERROR_HOST_MEMORY_NOT_REGISTERED));
        assert_eq!(pinned.free(address + 1), Err(Code::ERROR_INVALID_VALUE));
        assert_eq!(pinned.free(address), Ok(()));
        assert_eq!(pinned.free(address), Err(Code::ERROR_INVALID_VALUE));
        assert_eq!(pinned.find(address, 1), None);
    }

    #[test]
    fn registered_memory_does_not_overlap() {
        let pinned = Pinned::default();
        assert_eq!(pinned.register(8192, 100, 0), Ok(()));
        let again = Err(Code::ERROR_HOST_MEMORY_ALREADY_REGISTERED);
        for (address, bytes) in [(8192, 1), (8000, 193), (8291, 9), (8000, 1000)] {
            assert_eq!(pinned.register(address, bytes, 0), again, "{address}");
        }
        assert_eq!(pinned.register(8292, 9, 0), Ok(()));
        assert_eq!(pinned.register(8000, 192, 0), Ok(()));
        assert_eq!(pinned.free(8192), Err(Code::ERROR_INVALID_VALUE));
        assert_eq!(pinned.unregister(8192), Ok(()));
    }
}
