//! The unsafe corner: mapping files into memory. Raw pointers and handles stay inside.

#![expect(unsafe_code, reason = "memory maps have no safe constructor")]

use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// A file mapped for reading.
///
/// Files of a checkpoint must not be changed or truncated while it is served; this is the
/// operator's side of the contract (`docs/howto/model.md`), as for every server that maps weights.
#[derive(Debug, Clone)]
pub(crate) struct MappedFile {
    map: Arc<memmap2::Mmap>,
}

struct Owner(Arc<memmap2::Mmap>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl MappedFile {
    /// Maps all of `path`.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the mapping is private and read-only, so this process never writes through it;
        // that nobody truncates or rewrites the file meanwhile is the operator's documented duty.
        let map = unsafe { memmap2::Mmap::map(&file) }?;
        Ok(Self { map: Arc::new(map) })
    }

    /// The mapped bytes.
    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.map
    }

    /// The mapped bytes, shared: the mapping lives as long as any slice of the result.
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes::from_owner(Owner(self.map.clone()))
    }

    /// Gives the pages that lie wholly inside the range back to the system; reading them again
    /// fetches them from the file.
    pub(crate) fn drop_pages(&self, offset: usize, len: usize) {
        const PAGE: usize = 4096;
        let start = offset.next_multiple_of(PAGE);
        let end = (offset + len).min(self.map.len()) / PAGE * PAGE;
        if start >= end {
            return;
        }
        // SAFETY: the range is inside the mapping (`end` is bounded by its length), and the mapping
        // is of an unmodified file: dropped pages read back as the same bytes, so no `&[u8]`
        // handed out ever sees a change.
        let _advice_may_be_ignored = unsafe {
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, start, end - start)
        };
    }
}
