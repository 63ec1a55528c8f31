//! A content digest that travels with a page from pool to pool.

use crate::launch::{BufferId, CacheId};

/// What a page's digest binds besides its bytes, so that a page of another request, place or time
/// never passes for this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestKey {
    /// The owning transfer (made by the server, unique for the life of the process).
    pub owner: u64,
    /// Process generation and attempt of the transfer.
    pub generation: u64,
    /// Index of the page within its sequence.
    pub logical_page: u32,
    /// Tokens of the page that hold data; bytes past them do not count.
    pub valid_tokens: u32,
}

/// Digest of each layer of one page, and of its scale.
///
/// # Shapes
/// - `digests`: u64 `[num_layers]`; layer `l` binds `l`, the key, the scale's bits and the codes
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct PageDigest {
    pub cache: CacheId,
    pub page: u32,
    pub key: DigestKey,
    pub digests: BufferId,
}
