//! IEEE binary16, no scales.

use super::f32::F32;
use super::number;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `f16`.
    pub F16 = "f16" {
        element = number::F16,
        scale = none,
        tol = (0.00049, 0.00022),
        activation = F32,
    }
}
