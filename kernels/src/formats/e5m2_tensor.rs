//! FP8 E5M2 with one f32 scale for the whole weight.

use super::f32::F32;
use super::number::E5M2;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `e5m2-tensor`.
    pub E5m2Tensor = "e5m2-tensor" {
        element = E5M2,
        scale = F32 per (whole, whole), ragged = true,
        divisor = 57344.0, precision = F32,
        zero_point = false, tensor_scale = false,
        tol = (0.072, 0.055),
        activation = F32,
    }
}
