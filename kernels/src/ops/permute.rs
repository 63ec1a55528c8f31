//! Sorts token copies by expert, so that each expert sees one run of rows.

use super::check::Check;
use super::{Rows, RowsMut};
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};

/// Row `i` of `out` is `x[order[i] / top_k]`, where `order` sorts the `num_tokens * top_k` choices
/// by expert (stable).
///
/// # Shapes
/// - `x`: f32 `[num_tokens, size]`; `topk_ids`: i32 `[num_tokens, top_k]`
/// - `out`: f32 `[num_tokens * top_k, size]`; `order`: i32 `[num_tokens * top_k]`
/// - `expert_offsets`: i32 `[num_experts + 1]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Permute {
    pub x: RowView,
    pub topk_ids: BufferId,
    pub top_k: usize,
    pub num_experts: usize,
    pub out: RowView,
    pub order: BufferId,
    pub expert_offsets: BufferId,
}

impl Permute {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "permute", shapes };
        check.ensure(self.top_k > 0, "top_k", self.top_k, "at least 1")?;
        let choices = self.x.rows.saturating_mul(self.top_k);
        check.view("x", &self.x, [self.x.rows, self.x.cols])?;
        check.view("out", &self.out, [choices, self.x.cols])?;
        check.apart("out", self.out.buffer, &[self.x.buffer])?;
        check.array("topk_ids", self.topk_ids, BufferType::I32, choices)?;
        check.array("order", self.order, BufferType::I32, choices)?;
        check.array(
            "expert_offsets",
            self.expert_offsets,
            BufferType::I32,
            self.num_experts + 1,
        )?;
        check.apart("order", self.order, &[self.topk_ids, self.expert_offsets])?;
        check.apart("expert_offsets", self.expert_offsets, &[self.topk_ids])
    }

    /// Sorts, by counting.
    ///
    /// # Errors
    /// [`PlanError::Value`] on an expert that does not exist.
    pub fn reference(
        &self,
        (x, topk_ids): (Rows<'_>, &[i32]),
        out: RowsMut<'_>,
        order: &mut [i32],
        expert_offsets: &mut [i32],
    ) -> Result<(), PlanError> {
        let ids = &topk_ids[..self.x.rows * self.top_k];
        let mut counts = vec![0usize; self.num_experts];
        let experts = ids.iter().map(|id| {
            let expert = usize::try_from(*id).ok().filter(|&e| e < self.num_experts);
            expert.ok_or_else(|| {
                let (got, want) = (id.to_string(), "an expert");
                PlanError::Value { op: "permute", arg: "topk_ids", got, want }
            })
        });
        let experts: Vec<usize> = experts.collect::<Result<_, _>>()?;
        experts.iter().for_each(|&expert| counts[expert] += 1);
        let mut next = Vec::with_capacity(self.num_experts);
        let mut start = 0;
        for (offset, count) in expert_offsets.iter_mut().zip(&counts) {
            *offset = index(start);
            next.push(start);
            start += count;
        }
        expert_offsets[self.num_experts] = index(start);
        for (choice, &expert) in experts.iter().enumerate() {
            order[next[expert]] = index(choice);
            next[expert] += 1;
        }
        let order = &*order;
        out.for_each(self.x.cols, |row, out| {
            let choice = usize::try_from(order[row]).expect("written above");
            out.copy_from_slice(x.row(choice / self.top_k));
        });
        Ok(())
    }
}

fn index(value: usize) -> i32 {
    i32::try_from(value).expect("a step has fewer than 2^31 choices")
}
