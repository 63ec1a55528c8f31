//! NVFP4: FP4 E2M1, an E4M3 scale for each 16 elements of a row, an f32 scale for the weight.
//!
//! The f32 scale multiplies, as modelopt's `weight_scale_2` does. compressed-tensors stores the
//! divisor (`weight_global_scale`) instead: see [`super::TensorScaleKind`].

use super::activation::A16G16;
use super::number::E2M1;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `nvfp4`.
    pub Nvfp4 = "nvfp4" {
        element = E2M1,
        scale = E4M3 per (1, 16), ragged = false,
        divisor = 6.0, precision = E4M3,
        zero_point = false, tensor_scale = true,
        tol = (0.18, 0.1),
        activation = A16G16,
    }
}
