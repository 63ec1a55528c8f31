//! How much work a launch is: what its floor on a machine is computed from.

use crate::format::Format;
use crate::kernel::{Kernel, ParamKind};
use crate::types::Elem;

/// Work of one launch.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Counts {
    /// f32 operations; a multiply-add is one, and so is an exponential.
    pub flops: u64,
    /// Bytes read through each parameter, as often as they are read.
    pub loaded: Vec<f64>,
    /// Bytes written through each parameter.
    pub stored: Vec<f64>,
}

impl Counts {
    /// Bytes read and written through all parameters.
    pub fn bytes(&self) -> f64 {
        self.loaded.iter().chain(&self.stored).sum()
    }
}

/// Bytes of one element of a parameter; 0 for scalars.
pub(super) fn element_bytes(kernel: &Kernel, param: usize) -> f64 {
    match kernel.params[param].kind {
        ParamKind::Scalar(_) => 0.0,
        ParamKind::View { elem, .. } => match elem {
            Elem::F32 | Elem::I32 | Elem::U32 => 4.0,
            Elem::I64 | Elem::U64 => 8.0,
            Elem::Bool => 1.0,
            Elem::Stored(element) => element.bits() as f64 / 8.0,
            Elem::Packed(format) => packed_bytes(format),
        },
    }
}

/// A code and its share of scale and zero point; scales of whole rows or columns cost nothing.
fn packed_bytes(format: &Format) -> f64 {
    let scale = format.scale_tile.map_or(0.0, |tile| {
        let bytes = tile.scale.bytes() + usize::from(format.zero_point);
        bytes as f64 / (tile.rows as f64 * tile.cols as f64)
    });
    format.element.bits() as f64 / 8.0 + scale
}
