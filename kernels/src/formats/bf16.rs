//! The upper half of binary32, no scales.

use super::f32::F32;
use super::number;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `bf16`.
    pub Bf16 = "bf16" {
        element = number::Bf16,
        scale = none,
        tol = (0.00391, 0.00175),
        activation = F32,
    }
}
