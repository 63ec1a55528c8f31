//! Global memory: allocations that are never placed where another one was, with a record of which
//! bytes were written and who touched them last.

use crate::fault::MemoryError;
use crate::written::Written;

/// Where global memory starts.
pub(crate) const GLOBAL_BASE: u64 = 0x7000_0000_0000;
/// Bytes between allocations, so that running past one does not end in another.
const GAP: u64 = 0x1_0000;
/// Pages of records, of 12 KiB each, that are kept from one launch to the next.
const MOST_PAGES: usize = 4096;
/// Bytes that share a page of records.
const PAGE: usize = 1024;

/// The last accesses to a word, as `agent << 32 | clock`, and from which instruction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Touch {
    pub(crate) cta: u32,
    pub(crate) warp: u16,
    /// Which bytes of the word.
    pub(crate) bytes: u8,
    pub(crate) strong: bool,
    pub(crate) stamp: u32,
    pub(crate) pc: u32,
}

/// Who wrote a word last, and the last two agents that read it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WordRecord {
    pub(crate) write: Touch,
    pub(crate) reads: [Touch; 2],
}

type Page = Box<[WordRecord; PAGE / 4]>;

/// One allocation.
pub(crate) struct Block {
    pub(crate) base: u64,
    pub(crate) len: u64,
    freed: bool,
    pub(crate) read_only: bool,
    data: Vec<u8>,
    written: Written,
    pages: Vec<Option<Page>>,
}

impl Block {
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        &self.data[offset..offset + len]
    }

    pub(crate) fn bytes_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        &mut self.data[offset..offset + len]
    }

    /// Whether all of a range was written.
    pub(crate) fn is_written(&self, offset: usize, len: usize) -> bool {
        self.written.covers(offset, len)
    }

    pub(crate) fn mark_written(&mut self, offset: usize, len: usize) {
        self.written.mark(offset, len);
    }

    /// The records of the words from an offset up to another, as far as they share a page.
    pub(crate) fn records(&mut self, offset: usize, end: usize) -> &mut [WordRecord] {
        let page = self.pages[offset / PAGE]
            .get_or_insert_with(|| Box::new([WordRecord::default(); PAGE / 4]));
        let first = offset % PAGE / 4;
        let count = (end - offset).div_ceil(4).min(PAGE / 4 - first);
        &mut page[first..first + count]
    }
}

/// Why an address cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Miss {
    Outside,
    /// Past the end of the allocation with this start and length.
    PastEnd(u64, u64),
    Freed(u64, u64),
}

/// All allocations.
pub(crate) struct GlobalMemory {
    /// In order of address, those that were freed too.
    blocks: Vec<Block>,
    next: u64,
    used: u64,
    limit: u64,
    last: usize,
}

impl GlobalMemory {
    pub(crate) fn new(limit: u64) -> GlobalMemory {
        GlobalMemory { blocks: Vec::new(), next: GLOBAL_BASE, used: 0, limit, last: 0 }
    }

    /// Forgets who touched what, if that takes much memory, or if stamps are to begin anew.
    pub(crate) fn forget(&mut self, all: bool) {
        if !all && self.count_pages() < MOST_PAGES {
            return;
        }
        for block in &mut self.blocks {
            block.pages.iter_mut().for_each(|page| *page = None);
        }
    }

    fn count_pages(&self) -> usize {
        let pages = self.blocks.iter().flat_map(|block| &block.pages);
        pages.filter(|page| page.is_some()).count()
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.limit - self.used
    }

    pub(crate) fn alloc(&mut self, bytes: u64, align: u64) -> Result<u64, MemoryError> {
        if !align.is_power_of_two() {
            return Err(MemoryError::Alignment { align });
        }
        if bytes > self.free_bytes() {
            return Err(MemoryError::OutOfMemory { bytes, free: self.free_bytes() });
        }
        let base = self.next.next_multiple_of(align.max(256));
        self.next = base + bytes + GAP;
        self.used += bytes;
        let size = usize::try_from(bytes)
            .map_err(|_| MemoryError::OutOfMemory { bytes, free: self.limit })?;
        let mut pages = Vec::new();
        pages.resize_with(size.div_ceil(PAGE), || None);
        self.blocks.push(Block {
            base,
            len: bytes,
            freed: false,
            read_only: false,
            data: vec![0; size],
            written: Written::new(size),
            pages,
        });
        Ok(base)
    }

    pub(crate) fn free(&mut self, ptr: u64) -> Result<(), MemoryError> {
        let found = self.blocks.binary_search_by_key(&ptr, |block| block.base);
        let block = found.ok().map(|index| &mut self.blocks[index]);
        let Some(block) = block.filter(|block| !block.freed) else {
            return Err(MemoryError::NotAllocated { ptr });
        };
        block.freed = true;
        block.data = Vec::new();
        block.written = Written::default();
        block.pages = Vec::new();
        self.used -= block.len;
        Ok(())
    }

    pub(crate) fn protect(&mut self, ptr: u64) {
        if let Ok(index) = self.blocks.binary_search_by_key(&ptr, |block| block.base) {
            self.blocks[index].read_only = true;
        }
    }

    /// Start and length of the allocation that holds an address.
    pub(crate) fn range(&mut self, ptr: u64) -> Option<(u64, u64)> {
        self.find(ptr, 1).ok().map(|(block, _)| (block.base, block.len))
    }

    /// The allocation that holds a range, and where the range starts in it.
    pub(crate) fn find(&mut self, ptr: u64, len: u64) -> Result<(&mut Block, usize), Miss> {
        let index = self.index(ptr).ok_or(Miss::Outside)?;
        let block = &self.blocks[index];
        let offset = ptr - block.base;
        if offset >= block.len + GAP {
            return Err(Miss::Outside);
        }
        if offset.checked_add(len).is_none_or(|end| end > block.len) {
            return Err(Miss::PastEnd(block.base, block.len));
        }
        if block.freed {
            return Err(Miss::Freed(block.base, block.len));
        }
        self.last = index;
        Ok((&mut self.blocks[index], offset as usize))
    }

    fn index(&self, ptr: u64) -> Option<usize> {
        // Neighbouring lanes mostly mean the same allocation.
        let last = self.blocks.get(self.last);
        if last.is_some_and(|block| ptr >= block.base && ptr - block.base < block.len) {
            return Some(self.last);
        }
        self.blocks.partition_point(|block| block.base <= ptr).checked_sub(1)
    }

    /// A range for the host.
    pub(crate) fn host(
        &mut self,
        ptr: u64,
        bytes: u64,
    ) -> Result<(&mut Block, usize), MemoryError> {
        self.find(ptr, bytes).map_err(|miss| match miss {
            Miss::Freed(..) => MemoryError::Freed { ptr, bytes },
            Miss::Outside | Miss::PastEnd(..) => MemoryError::OutOfBounds { ptr, bytes },
        })
    }
}
