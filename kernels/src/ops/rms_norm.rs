//! Root-mean-square norm, with the residual added first where there is one.

use super::check::Check;
use super::{Rows, RowsMut, dot};
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};

/// `h = residual + x` (kept in `residual`) or `h = x`; `out = h / sqrt(mean(h^2) + eps) * weight`.
///
/// # Shapes
/// - `x`, `residual`, `out`: f32 `[num_tokens, size]`; `out` shares no buffer with the others
/// - `weight`: f32 `[size]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct RmsNorm {
    pub x: RowView,
    pub residual: Option<RowView>,
    pub weight: BufferId,
    pub eps: f32,
    pub out: RowView,
}

impl RmsNorm {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "rms_norm", shapes };
        let shape = [self.x.rows, self.x.cols];
        check.view("x", &self.x, shape)?;
        check.view("out", &self.out, shape)?;
        check.apart("out", self.out.buffer, &[self.x.buffer, self.weight])?;
        if let Some(residual) = &self.residual {
            check.view("residual", residual, shape)?;
            check.apart("residual", residual.buffer, &[self.x.buffer, self.weight])?;
            check.apart("out", self.out.buffer, &[residual.buffer])?;
        }
        check.array("weight", self.weight, BufferType::F32, self.x.cols)
    }

    /// Adds the residual where there is one, then norms.
    pub fn reference(
        &self,
        x: Rows<'_>,
        residual: Option<RowsMut<'_>>,
        weight: &[f32],
        out: RowsMut<'_>,
    ) {
        let mut residual = residual.map(RowsMut::into_rows);
        for (t, out) in out.into_rows().into_iter().enumerate() {
            match &mut residual {
                None => self.norm(x.row(t), weight, out),
                Some(residual) => {
                    let sum = &mut *residual[t];
                    sum.iter_mut().zip(x.row(t)).for_each(|(sum, x)| *sum += x);
                    self.norm(sum, weight, out);
                }
            }
        }
    }

    fn norm(&self, h: &[f32], weight: &[f32], out: &mut [f32]) {
        #[expect(clippy::cast_precision_loss, reason = "hidden sizes are far below 2^24")]
        let mean = dot(h, h) / h.len() as f32;
        let factor = 1.0 / (mean + self.eps).sqrt();
        for ((out, h), weight) in out.iter_mut().zip(h).zip(weight) {
            *out = h * factor * weight;
        }
    }
}
