//! What a launch is: data that names its op, its buffers and its sizes.
//!
//! Nothing here touches memory. A device owns the buffers that the ids stand for and performs
//! a [`Launch`]; `Launch::check` finds a shape that does not fit before anything runs.

use crate::ops::{
    absorb::{AbsorbQuery, AbsorbValue},
    combine::Combine,
    embedding::Embedding,
    gather::GatherRows,
    kv_convert::{KvAmax, KvConvert},
    kv_write::KvWrite,
    linear::{GroupedLinear, Linear},
    mla_decode::MlaDecode,
    mla_prefill::MlaPrefill,
    page_digest::PageDigest,
    page_tag_check::PageTagCheck,
    permute::Permute,
    rms_norm::RmsNorm,
    rope::Rope,
    router::Router,
    sample::Sample,
    swiglu::SwiGlu,
};

/// A typed array in device memory (f32, i32, i64, u32, u64 or bytes).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(pub u32);

/// A weight matrix in device memory, in whatever format its pool keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightId(pub u32);

/// The paged KV cache of one pool in device memory: `[num_layers][num_pages, page_size, entry]`,
/// with one f32 scale per layer and page and one u64 tag per page.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CacheId(pub u32);

/// A 2-d f32 view: `rows` rows of `cols` elements, `stride` elements apart, from `offset` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RowView {
    /// The array viewed.
    pub buffer: BufferId,
    /// First element of row 0.
    pub offset: usize,
    /// Number of rows.
    pub rows: usize,
    /// Elements per row.
    pub cols: usize,
    /// Elements from one row's start to the next one's.
    pub stride: usize,
}

impl RowView {
    /// A view of `rows` contiguous rows from the start of `buffer`.
    pub fn contiguous(buffer: BufferId, rows: usize, cols: usize) -> Self {
        Self { buffer, offset: 0, rows, cols, stride: cols }
    }

    /// The columns `start..start + cols` of this view.
    pub fn columns(self, start: usize, cols: usize) -> Self {
        assert!(start + cols <= self.cols, "columns {start}+{cols} of a view of {}", self.cols);
        Self { offset: self.offset + start, cols, ..self }
    }
}

/// One unit of device work.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is documented by the struct it holds")]
pub enum Launch {
    Embedding(Embedding),
    RmsNorm(RmsNorm),
    Linear(Linear),
    GroupedLinear(GroupedLinear),
    Rope(Rope),
    KvWrite(KvWrite),
    MlaPrefill(MlaPrefill),
    AbsorbQuery(AbsorbQuery),
    MlaDecode(MlaDecode),
    AbsorbValue(AbsorbValue),
    SwiGlu(SwiGlu),
    Router(Router),
    Permute(Permute),
    Combine(Combine),
    GatherRows(GatherRows),
    Sample(Sample),
    PageTagCheck(PageTagCheck),
    PageDigest(PageDigest),
    KvAmax(KvAmax),
    KvConvert(KvConvert),
}

/// Why a launch cannot be planned. Every variant is the caller's to fix.
#[non_exhaustive]
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message is the doc")]
pub enum PlanError {
    #[error("{op}: `{arg}` has shape {got:?}, expected {want:?}")]
    Shape { op: &'static str, arg: &'static str, got: Vec<usize>, want: Vec<usize> },
    #[error("{op}: `{arg}` is {got}, expected {want}")]
    Value { op: &'static str, arg: &'static str, got: String, want: &'static str },
}
