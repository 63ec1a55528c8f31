//! Makes token ids of what an earlier step sampled, so that they need not pass through the host.

use super::check::Check;
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError};

/// `ids[t] = sampled[source[t]]`, or the token that `source[t]` names itself ([`given`]).
///
/// # Shapes
/// - `sampled`: i32 `[num_rows]`; a row without a token (-1) gives token 0, as what is computed from
///   it is thrown away
/// - `source`: i32 `[num_tokens]`, each a row of `sampled` or negative
/// - `ids`: i32 `[num_tokens]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct FeedTokens {
    pub sampled: BufferId,
    pub num_rows: usize,
    pub source: BufferId,
    pub ids: BufferId,
    pub num_tokens: usize,
}

/// How a `source` names a token itself: `-1 - token`.
pub const fn given(token: i32) -> i32 {
    -1 - token
}

impl FeedTokens {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "feed_tokens", shapes };
        check.array("sampled", self.sampled, BufferType::I32, self.num_rows)?;
        check.array("source", self.source, BufferType::I32, self.num_tokens)?;
        check.array("ids", self.ids, BufferType::I32, self.num_tokens)?;
        check.apart("ids", self.ids, &[self.sampled, self.source])
    }

    /// Picks.
    ///
    /// # Errors
    /// [`PlanError::Value`] on a row that `sampled` does not have.
    pub fn reference(
        &self,
        sampled: &[i32],
        source: &[i32],
        ids: &mut [i32],
    ) -> Result<(), PlanError> {
        let sampled = &sampled[..self.num_rows];
        for (id, &source) in ids.iter_mut().zip(&source[..self.num_tokens]) {
            *id = match usize::try_from(source) {
                Err(_) => given(source),
                Ok(row) => {
                    let token = sampled.get(row).ok_or_else(|| {
                        let (got, want) = (row.to_string(), "a row that was sampled");
                        PlanError::Value { op: "feed_tokens", arg: "source", got, want }
                    })?;
                    (*token).max(0)
                }
            };
        }
        Ok(())
    }
}
