//! IEEE binary32, as is.

use super::number;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `f32`.
    pub F32 = "f32" {
        element = number::F32,
        scale = none,
        tol = (0.0, 0.0),
        activation = self,
    }
}
