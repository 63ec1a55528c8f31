//! The integrity check that runs before a step reads the cache.

use crate::launch::{BufferId, CacheId};

/// Compares the tag of each page in the block table with the tag its reader holds.
///
/// # Shapes
/// - `block_table`: i32 `[num_seqs, max_pages_per_seq]`, the table attention will read
/// - `expected`: u64 `[num_seqs, max_pages_per_seq]`; `num_pages`: i32 `[num_seqs]`, entries in use
/// - `mismatch`: i32 `[num_seqs]`; the first entry whose tag differs (or whose page id is out of
///   range), `-1` if all agree
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct PageTagCheck {
    pub cache: CacheId,
    pub block_table: BufferId,
    pub expected: BufferId,
    pub num_pages: BufferId,
    pub num_seqs: usize,
    pub max_pages_per_seq: usize,
    pub mismatch: BufferId,
}
