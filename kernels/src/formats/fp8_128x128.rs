//! FP8 E4M3 with an f32 scale for each 128x128 tile, the last of which may be partial.
//!
//! The layout of DeepSeek's FP8 checkpoints, whose `weight_scale_inv` is this scale and no inverse.

use super::f32::F32;
use super::number::E4M3;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `fp8-128x128`.
    pub Fp8Tile128 = "fp8-128x128" {
        element = E4M3,
        scale = F32 per (128, 128), ragged = true,
        divisor = 448.0, precision = F32,
        zero_point = false, tensor_scale = false,
        tol = (0.036, 0.028),
        activation = F32,
    }
}
