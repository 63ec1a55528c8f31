//! FP8 E4M3 with a scale for each row, as compressed-tensors' `float-quantized` stores it.
//!
//! Such checkpoints carry bf16 or f32 scales. The format holds f32, to which a reader widens bf16
//! without loss; the quantizer rounds to bf16, so that what it makes can be written as either.

use super::f32::F32;
use super::number::E4M3;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `fp8-channel`.
    pub Fp8Channel = "fp8-channel" {
        element = E4M3,
        scale = F32 per (1, whole), ragged = true,
        divisor = 448.0, precision = Bf16,
        zero_point = false, tensor_scale = false,
        tol = (0.0365, 0.028),
        activation = F32,
    }
}
