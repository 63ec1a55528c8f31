//! FP8 E4M3 with an f32 scale for each run of 128 elements of a row, the last of which may be
//! short.

use super::f32::F32;
use super::number::E4M3;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `fp8-1x128`.
    pub Fp8Row128 = "fp8-1x128" {
        element = E4M3,
        scale = F32 per (1, 128), ragged = true,
        divisor = 448.0, precision = F32,
        zero_point = false, tensor_scale = false,
        tol = (0.036, 0.028),
        activation = F32,
    }
}
