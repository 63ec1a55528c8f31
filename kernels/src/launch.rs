//! What a launch is: data that names its op, its buffers and its sizes.
//!
//! Nothing here touches memory. A device owns the buffers that the ids stand for and performs
//! a [`Launch`]; `Launch::check` finds a shape that does not fit before anything runs.

use crate::formats::KvFormat;
use crate::ops::{
    absorb::{AbsorbQuery, AbsorbValue},
    combine::Combine,
    embedding::Embedding,
    feed::FeedTokens,
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

/// Element type of a buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "the names of the types")]
pub enum BufferType {
    F32,
    I32,
    I64,
    U32,
    U64,
    Bytes,
}

/// Format and extents of a paged cache: `[num_layers][num_pages, page_size, entry]`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheSpec {
    /// How elements are stored.
    pub format: &'static KvFormat,
    /// Layers of the model.
    pub num_layers: usize,
    /// Pages of the pool.
    pub num_pages: usize,
    /// Tokens per page.
    pub page_size: usize,
    /// Elements a token takes in one layer: `kv_lora_rank + qk_rope_head_dim`.
    pub entry: usize,
}

// Offsets below are products of slots and strides that pass 2^32 in any real pool.
const _: () = assert!(usize::BITS >= 64, "a cache needs 64-bit offsets");

impl CacheSpec {
    /// Bytes of one token in one layer.
    pub const fn entry_bytes(&self) -> usize {
        self.entry * self.format.element.bits() / 8
    }

    /// Bytes of one page in one layer.
    pub const fn page_layer_bytes(&self) -> usize {
        self.page_size * self.entry_bytes()
    }

    /// Bytes of one page in all layers.
    pub const fn page_bytes(&self) -> usize {
        self.num_layers * self.page_layer_bytes()
    }

    /// Bytes of the whole cache, unless they pass what an address can hold.
    pub fn num_bytes(&self) -> Option<usize> {
        let bits = self.entry.checked_mul(self.format.element.bits())?;
        let pages = self.num_layers.checked_mul(self.num_pages)?;
        let bytes = pages.checked_mul(self.page_size)?.checked_mul(bits / 8)?;
        isize::try_from(bytes).is_ok().then_some(bytes)
    }

    /// Slots of one layer.
    pub const fn num_slots(&self) -> usize {
        self.num_pages * self.page_size
    }

    /// First byte of `slot` in `layer`.
    pub const fn slot_offset(&self, layer: usize, slot: usize) -> usize {
        (layer * self.num_slots() + slot) * self.entry_bytes()
    }

    /// First byte of `page` in `layer`.
    pub const fn page_offset(&self, layer: usize, page: usize) -> usize {
        self.slot_offset(layer, page * self.page_size)
    }
}

/// What a device holds: all that a launch is checked against.
#[derive(Debug, Clone, Default)]
pub struct DeviceShapes {
    /// Type and length of each buffer, by id.
    pub buffers: Vec<(BufferType, usize)>,
    /// `[rows, cols]` of each weight, by id.
    pub weights: Vec<[usize; 2]>,
    /// Each cache, by id.
    pub caches: Vec<CacheSpec>,
}

/// One unit of device work.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "each variant is documented by the struct it holds")]
pub enum Launch {
    FeedTokens(FeedTokens),
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

impl Launch {
    /// Whether every shape fits what the device holds. What the *contents* of index buffers must
    /// satisfy is checked when the launch runs.
    ///
    /// # Errors
    /// [`PlanError`] that names the op, the argument, its value and what would do.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        match self {
            Self::FeedTokens(op) => op.check(shapes),
            Self::Embedding(op) => op.check(shapes),
            Self::RmsNorm(op) => op.check(shapes),
            Self::Linear(op) => op.check(shapes),
            Self::GroupedLinear(op) => op.check(shapes),
            Self::Rope(op) => op.check(shapes),
            Self::KvWrite(op) => op.check(shapes),
            Self::MlaPrefill(op) => op.check(shapes),
            Self::AbsorbQuery(op) => op.check(shapes),
            Self::MlaDecode(op) => op.check(shapes),
            Self::AbsorbValue(op) => op.check(shapes),
            Self::SwiGlu(op) => op.check(shapes),
            Self::Router(op) => op.check(shapes),
            Self::Permute(op) => op.check(shapes),
            Self::Combine(op) => op.check(shapes),
            Self::GatherRows(op) => op.check(shapes),
            Self::Sample(op) => op.check(shapes),
            Self::PageTagCheck(op) => op.check(shapes),
            Self::PageDigest(op) => op.check(shapes),
            Self::KvAmax(op) => op.check(shapes),
            Self::KvConvert(op) => op.check(shapes),
        }
    }
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
