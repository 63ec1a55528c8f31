//! Owns pages: who holds each, its tag, and what may be reused.

/// One page of a pool's cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Changes each time a page changes hands; a reader holds `(page, tag)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageTag(pub u64);
