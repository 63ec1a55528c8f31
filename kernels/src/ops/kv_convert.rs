//! Converts cached pages from one pool's KV format to another's.

use crate::formats::KvFormat;
use crate::launch::{BufferId, CacheId};

/// Largest magnitude per layer of the valid tokens of one page: folded into `amax` by maximum.
///
/// # Shapes
/// - `amax`: f32 `[num_layers]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct KvAmax {
    pub cache: CacheId,
    pub page: u32,
    pub valid_tokens: u32,
    pub amax: BufferId,
}

/// Re-encodes one page: `stored' = encode_target(stored * k_scale / target_scale)`; a conversion to
/// the same format and scale copies codes unchanged.
///
/// # Shapes
/// - `target_scales`: f32 `[num_layers]`
/// - `out`: bytes `[num_layers][page_size, entry]` in the target format; zero past `valid_tokens`
/// - `saturated`: u32 `[1]`; the count of clamped elements is added
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct KvConvert {
    pub cache: CacheId,
    pub page: u32,
    pub valid_tokens: u32,
    pub target: &'static KvFormat,
    pub target_scales: BufferId,
    pub out: BufferId,
    pub saturated: BufferId,
}
