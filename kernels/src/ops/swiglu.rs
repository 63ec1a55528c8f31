//! The gated activation of the feed-forward layers.

use super::check::Check;
use super::{Rows, RowsMut};
use crate::launch::{DeviceShapes, PlanError, RowView};

/// `out = silu(gate) * up`, elementwise on f32 `[num_rows, size]`.
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see the summary")]
pub struct SwiGlu {
    pub gate: RowView,
    pub up: RowView,
    pub out: RowView,
}

impl SwiGlu {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "swiglu", shapes };
        let shape = [self.gate.rows, self.gate.cols];
        check.view("gate", &self.gate, shape)?;
        check.view("up", &self.up, shape)?;
        check.view("out", &self.out, shape)?;
        check.apart("out", self.out.buffer, &[self.gate.buffer, self.up.buffer])
    }

    /// Activates.
    pub fn reference(&self, gate: Rows<'_>, up: Rows<'_>, out: RowsMut<'_>) {
        out.for_each(self.gate.cols * 16, |t, out| {
            for ((out, gate), up) in out.iter_mut().zip(gate.row(t)).zip(up.row(t)) {
                *out = gate / (1.0 + (-gate).exp()) * up;
            }
        });
    }
}
