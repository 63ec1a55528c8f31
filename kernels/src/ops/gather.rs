//! Picks rows, such as the last token of each sequence before the vocabulary projection.

use super::check::Check;
use super::{Rows, RowsMut};
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};

/// `out[i] = x[rows[i]]`.
///
/// # Shapes
/// - `x`: f32 `[num_tokens, size]`; `rows`: i32 `[num_rows]`; `out`: f32 `[num_rows, size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct GatherRows {
    pub x: RowView,
    pub rows: BufferId,
    pub out: RowView,
}

impl GatherRows {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "gather_rows", shapes };
        check.view("x", &self.x, [self.x.rows, self.x.cols])?;
        check.view("out", &self.out, [self.out.rows, self.x.cols])?;
        check.apart("out", self.out.buffer, &[self.x.buffer])?;
        check.array("rows", self.rows, BufferType::I32, self.out.rows)
    }

    /// Copies rows.
    ///
    /// # Errors
    /// [`PlanError::Value`] on a row that `x` does not have.
    pub fn reference(
        &self,
        x: Rows<'_>,
        rows: &[i32],
        mut out: RowsMut<'_>,
    ) -> Result<(), PlanError> {
        for (i, row) in rows[..self.out.rows].iter().enumerate() {
            let from = usize::try_from(*row).ok().filter(|&row| row < x.num_rows());
            let from = from.ok_or_else(|| {
                let (got, want) = (row.to_string(), "a row of `x`");
                PlanError::Value { op: "gather_rows", arg: "rows", got, want }
            })?;
            out.row_mut(i).copy_from_slice(x.row(from));
        }
        Ok(())
    }
}
