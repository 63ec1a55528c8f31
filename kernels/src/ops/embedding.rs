//! Rows of the embedding table by token id.

use super::RowsMut;
use super::check::Check;
use crate::formats::PackedMatrix;
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView, WeightId};

/// `out[t] = table[ids[t]]`.
///
/// # Shapes
/// - `ids`: i32 `[num_tokens]`, each in `0..vocab_size`
/// - `table`: `[vocab_size, hidden_size]`
/// - `out`: f32 `[num_tokens, hidden_size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Embedding {
    pub ids: BufferId,
    pub table: WeightId,
    pub out: RowView,
}

impl Embedding {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "embedding", shapes };
        let [_, hidden] = check.weight_shape("table", self.table)?;
        check.view("out", &self.out, [self.out.rows, hidden])?;
        check.array("ids", self.ids, BufferType::I32, self.out.rows)
    }

    /// Looks up.
    ///
    /// # Errors
    /// [`PlanError::Value`] on an id outside the vocabulary.
    pub fn reference(
        &self,
        ids: &[i32],
        table: &PackedMatrix,
        out: RowsMut<'_>,
    ) -> Result<(), PlanError> {
        let ids = &ids[..self.out.rows];
        if let Some(id) =
            ids.iter().find(|&&id| !usize::try_from(id).is_ok_and(|id| id < table.rows))
        {
            let (got, want) = (id.to_string(), "a token of the vocabulary");
            return Err(PlanError::Value { op: "embedding", arg: "ids", got, want });
        }
        out.for_each(table.cols, |t, out| {
            table.decode_row(usize::try_from(ids[t]).expect("checked above"), out);
        });
        Ok(())
    }
}
