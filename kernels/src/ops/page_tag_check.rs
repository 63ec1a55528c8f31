//! The integrity check that runs before a step reads the cache.

use super::check::Check;
use crate::launch::{BufferId, BufferType, CacheId, DeviceShapes, PlanError};

/// Compares the tag of each page in the block table with the tag its reader holds. A sequence with
/// a page that differs writes nothing in this step: its slots become -1, as the page that it would
/// write to may be another request's by now.
///
/// # Shapes
/// - `block_table`: i32 `[num_seqs, max_pages_per_seq]`, the table attention will read
/// - `expected`: u64 `[num_seqs, max_pages_per_seq]`; `num_pages`: i32 `[num_seqs]`, entries in use
/// - `mismatch`: i32 `[num_seqs]`; the first entry whose tag differs (or whose page id is out of
///   range), `-1` if all agree
/// - `cu_seqlens_q`: i32 `[num_seqs + 1]`, the rows of each sequence in `slot_mapping`: i64
///   `[num_tokens]`
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
    pub cu_seqlens_q: BufferId,
    pub num_tokens: usize,
    pub slot_mapping: BufferId,
}

/// What [`PageTagCheck::reference`] reads.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as the launch")]
pub struct TagInputs<'a> {
    /// `[num_pages]` of the cache.
    pub tags: &'a [u64],
    pub block_table: &'a [i32],
    pub expected: &'a [u64],
    pub num_pages: &'a [i32],
    pub cu_seqlens_q: &'a [i32],
}

impl PageTagCheck {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "page_tag_check", shapes };
        check.cache(self.cache)?;
        let table = self.num_seqs.saturating_mul(self.max_pages_per_seq);
        check.array("block_table", self.block_table, BufferType::I32, table)?;
        check.array("expected", self.expected, BufferType::U64, table)?;
        check.array("num_pages", self.num_pages, BufferType::I32, self.num_seqs)?;
        check.array("mismatch", self.mismatch, BufferType::I32, self.num_seqs)?;
        check.array("cu_seqlens_q", self.cu_seqlens_q, BufferType::I32, self.num_seqs + 1)?;
        check.array("slot_mapping", self.slot_mapping, BufferType::I64, self.num_tokens)?;
        let read = [self.block_table, self.num_pages, self.cu_seqlens_q];
        check.apart("mismatch", self.mismatch, &read)
    }

    /// Compares.
    ///
    /// # Errors
    /// [`PlanError::Value`] if a sequence has a negative number of pages or more than its row, or
    /// rows that are not in `slot_mapping`.
    pub fn reference(
        &self,
        inputs: &TagInputs<'_>,
        mismatch: &mut [i32],
        slot_mapping: &mut [i64],
    ) -> Result<(), PlanError> {
        for (s, mismatch) in mismatch.iter_mut().enumerate().take(self.num_seqs) {
            let pages = inputs.num_pages[s];
            let in_use = usize::try_from(pages).ok().filter(|&p| p <= self.max_pages_per_seq);
            let in_use = in_use.ok_or_else(|| PlanError::Value {
                op: "page_tag_check",
                arg: "num_pages",
                got: pages.to_string(),
                want: "0 to `max_pages_per_seq`",
            })?;
            let row = s * self.max_pages_per_seq..s * self.max_pages_per_seq + in_use;
            let entries = inputs.block_table[row.clone()].iter().zip(&inputs.expected[row]);
            let bad = entries.zip(0..).find(|((page, expected), _)| {
                let page = usize::try_from(**page).ok();
                page.and_then(|page| inputs.tags.get(page)) != Some(expected)
            });
            *mismatch = bad.map_or(-1, |(_, entry)| entry);
            if bad.is_some() {
                self.own_slots(s, inputs, slot_mapping)?.fill(-1);
            }
        }
        Ok(())
    }

    fn own_slots<'a>(
        &self,
        seq: usize,
        inputs: &TagInputs<'_>,
        slot_mapping: &'a mut [i64],
    ) -> Result<&'a mut [i64], PlanError> {
        let [start, end] = [seq, seq + 1].map(|row| inputs.cu_seqlens_q[row]);
        let rows = usize::try_from(start).ok().zip(usize::try_from(end).ok());
        let rows = rows.filter(|&(start, end)| start <= end && end <= self.num_tokens);
        let (start, end) = rows.ok_or_else(|| PlanError::Value {
            op: "page_tag_check",
            arg: "cu_seqlens_q",
            got: format!("{start}..{end}"),
            want: "rising, and at most `num_tokens`",
        })?;
        Ok(&mut slot_mapping[start..end])
    }
}
