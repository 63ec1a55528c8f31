//! Weighted sum of the experts' rows of each token, plus the shared expert.

use super::check::Check;
use super::dot::add_scaled;
use super::{Rows, RowsMut};
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};

/// `out[t] = shared[t] + sum_k topk_weights[t, k] * x[row of choice (t, k)]`, summed in the order
/// of `k` whatever the batch.
///
/// # Shapes
/// - `x`: f32 `[num_tokens * top_k, size]` in the order of `order` (see [`super::permute::Permute`])
/// - `topk_weights`: f32 `[num_tokens, top_k]`; `shared`, `out`: f32 `[num_tokens, size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Combine {
    pub x: RowView,
    pub order: BufferId,
    pub topk_weights: BufferId,
    pub top_k: usize,
    pub shared: Option<RowView>,
    pub out: RowView,
}

/// What [`Combine::reference`] reads.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "as the launch")]
pub struct CombineInputs<'a> {
    pub x: Rows<'a>,
    pub order: &'a [i32],
    pub topk_weights: &'a [f32],
    pub shared: Option<Rows<'a>>,
}

impl Combine {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "combine", shapes };
        let (tokens, size) = (self.out.rows, self.out.cols);
        check.ensure(self.top_k > 0, "top_k", self.top_k, "at least 1")?;
        let choices = tokens.saturating_mul(self.top_k);
        check.view("x", &self.x, [choices, size])?;
        check.view("out", &self.out, [tokens, size])?;
        check.apart("out", self.out.buffer, &[self.x.buffer, self.topk_weights])?;
        if let Some(shared) = &self.shared {
            check.view("shared", shared, [tokens, size])?;
            check.apart("out", self.out.buffer, &[shared.buffer])?;
        }
        check.array("order", self.order, BufferType::I32, choices)?;
        check.array("topk_weights", self.topk_weights, BufferType::F32, choices)
    }

    /// Sums.
    ///
    /// # Errors
    /// [`PlanError::Value`] if `order` holds a choice twice or one that does not exist.
    pub fn reference(&self, inputs: &CombineInputs<'_>, out: RowsMut<'_>) -> Result<(), PlanError> {
        let choices = self.out.rows * self.top_k;
        let mut row_of = vec![usize::MAX; choices];
        for (row, &choice) in inputs.order[..choices].iter().enumerate() {
            let slot = usize::try_from(choice).ok().and_then(|choice| row_of.get_mut(choice));
            match slot {
                Some(slot) if *slot == usize::MAX => *slot = row,
                _ => {
                    let want = "a permutation of the choices";
                    let got = choice.to_string();
                    return Err(PlanError::Value { op: "combine", arg: "order", got, want });
                }
            }
        }
        out.for_each(self.top_k * self.out.cols, |t, out| {
            match &inputs.shared {
                Some(shared) => out.copy_from_slice(shared.row(t)),
                None => out.fill(0.0),
            }
            let weights = inputs.topk_weights.chunks(self.top_k).nth(t).unwrap_or_default();
            let rows = row_of.chunks(self.top_k).nth(t).unwrap_or_default();
            for (weight, row) in weights.iter().zip(rows) {
                add_scaled(out, *weight, inputs.x.row(*row));
            }
        });
        Ok(())
    }
}
