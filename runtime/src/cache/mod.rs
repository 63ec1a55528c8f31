//! Owns pages: who holds each, its tag, and what may be reused.
//!
//! Knows no device, clock or thread, and no request but by the tables it fills. A page is free
//! only when its owners and its writers are both zero; nothing here ever times out.

mod namespace;
mod pool;
mod prefix;
mod tracker;

pub use namespace::{Adapter, CacheNamespace, CacheSalt};
pub use pool::{AuditError, LeaseId, OutOfPages, PageCounts, PagePool, PoolSize};
pub(crate) use tracker::tracking;
pub use tracker::{NoopTracker, PageTable, PageTracker, TagTracker};

/// A page of a pool, `0..num_pages`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageId(pub u32);

/// Changes each time a page is given out or taken back; 64 bits, so it never comes round again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PageTag(pub u64);
