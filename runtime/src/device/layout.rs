//! What kernels are told of a launch on every device: how heads lie in rows, in what parts attention
//! takes a context, which rows of a batch a kernel samples.

use std::ops::Range;
use tessera_kernels::launch::{CacheSpec, PlanError};
use tessera_kernels::ops::mla_prefill::{MlaDims, PagedBatch};
use tessera_kernels::ops::rope::Rotation;
use tessera_kernels::ops::sample::SampleParams;

/// Cached tokens that one program of a decode step attends to: more become parts, side by side.
pub(super) const SPLIT_TOKENS: usize = 512;
/// Cached tokens whose keys and values a prefill step has expanded at once.
pub(super) const RUN_TOKENS: usize = 2048;

/// An extent as kernels take it.
pub(super) fn int(value: usize) -> i64 {
    i64::try_from(value).expect("an extent is below 2^63")
}

/// How heads lie in a row.
#[derive(Debug, Clone, Copy)]
pub(super) struct Heads {
    pub(super) count: usize,
    /// First element of the first head that is wanted.
    pub(super) first: usize,
    /// Elements wanted of each head.
    pub(super) size: usize,
    /// Elements from a head to the next.
    pub(super) stride: usize,
}

/// The part of a query that is not rotated.
pub(super) fn nope_heads(dims: &MlaDims) -> Heads {
    let (size, stride) = (dims.qk_nope_head_dim, dims.qk_head_dim());
    Heads { count: dims.num_heads, first: 0, size, stride }
}

/// The rotated part of a query.
pub(super) fn rope_heads(dims: &MlaDims) -> Heads {
    let (first, size) = (dims.qk_nope_head_dim, dims.qk_rope_head_dim);
    Heads { count: dims.num_heads, first, size, stride: dims.qk_head_dim() }
}

/// Heads of `size` elements without gaps.
pub(super) fn dense_heads(dims: &MlaDims, size: usize) -> Heads {
    Heads { count: dims.num_heads, first: 0, size, stride: size }
}

/// Distance from pair to pair, and within a pair.
pub(super) fn pairs(rotation: &Rotation, rope_dim: usize) -> (i64, i64) {
    if rotation.interleaved { (2, 1) } else { (1, int(rope_dim / 2)) }
}

/// The longest sequence of a batch, and that the block table covers them all.
pub(super) fn longest(
    seq_lens: &[i32],
    batch: &PagedBatch,
    page_size: usize,
) -> Result<usize, PlanError> {
    let mut longest = 0;
    for &len in &seq_lens[..batch.num_seqs] {
        let known = usize::try_from(len).ok();
        let known = known.filter(|len| len.div_ceil(page_size) <= batch.max_pages_per_seq);
        let error = || PlanError::Value {
            op: "attention",
            arg: "seq_lens",
            got: len.to_string(),
            want: "a length that the block table covers",
        };
        longest = longest.max(known.ok_or_else(error)?);
    }
    Ok(longest)
}

/// Tokens `first..` of every sequence, at most [`RUN_TOKENS`] of each. Runs end at multiples of that
/// of their sequence, so no batch changes a bit.
#[derive(Debug)]
pub(super) struct Run {
    /// Rows of each sequence in the run, `[seqs + 1]`; and the first token of each.
    pub(super) starts: Vec<i32>,
    pub(super) first_tokens: Vec<i32>,
    pub(super) rows: usize,
}

impl Run {
    pub(super) fn new(first: usize, seq_lens: &[i32]) -> Self {
        let mut run =
            Self { starts: vec![0], first_tokens: vec![index(first); seq_lens.len()], rows: 0 };
        for &len in seq_lens {
            let len = usize::try_from(len).unwrap_or(0);
            run.rows += len.saturating_sub(first).min(RUN_TOKENS);
            run.starts.push(index(run.rows));
        }
        run
    }
}

/// A row, token or slot as kernels index it.
pub(super) fn index(value: usize) -> i32 {
    i32::try_from(value).expect("a cache has fewer than 2^31 slots")
}

/// Bytes of a cache from a page's place in the first layer to its end in the last.
pub(super) fn page_range(spec: &CacheSpec, page: usize) -> Range<usize> {
    let end = spec.page_offset(spec.num_layers - 1, page) + spec.page_layer_bytes();
    spec.page_offset(0, page)..end
}

/// `row_of[order[i]] = i`.
pub(super) fn invert(order: &[i32], row_of: &mut [i32]) -> Result<(), PlanError> {
    row_of.fill(-1);
    for (row, &choice) in (0..).zip(order) {
        let place = usize::try_from(choice).ok().and_then(|choice| row_of.get_mut(choice));
        match place {
            Some(place) if *place == -1 => *place = row,
            _ => {
                let (got, want) = (choice.to_string(), "a permutation of the choices");
                return Err(PlanError::Value { op: "combine", arg: "order", got, want });
            }
        }
    }
    Ok(())
}

/// Whether a row of these is answered by its likeliest token alone.
pub(crate) fn wants_likeliest(params: &SampleParams) -> bool {
    let is_plain = !params.has_penalty() && params.logit_bias.is_empty();
    params.is_greedy() && is_plain && params.top_logprobs.unwrap_or(0) == 0
}
