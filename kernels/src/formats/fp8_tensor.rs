//! FP8 E4M3 with one f32 scale for the whole weight.

use super::f32::F32;
use super::number::E4M3;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `fp8-tensor`.
    pub Fp8Tensor = "fp8-tensor" {
        element = E4M3,
        scale = F32 per (whole, whole), ragged = true,
        divisor = 448.0, precision = F32,
        zero_point = false, tensor_scale = false,
        tol = (0.036, 0.028),
        activation = F32,
    }
}
