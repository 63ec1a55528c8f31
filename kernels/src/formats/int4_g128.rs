//! Four-bit integers, symmetric, a bf16 scale for each 128 elements of a row.
//!
//! The layout of compressed-tensors' `pack-quantized`, eight codes an i32, low nibble first: the
//! same bytes as ours wherever the width is a multiple of 8.

use super::activation::A16G128;
use super::number::I4;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `int4-g128`.
    pub Int4G128 = "int4-g128" {
        element = I4,
        scale = Bf16 per (1, 128), ragged = false,
        divisor = 7.5, precision = Bf16,
        zero_point = false, tensor_scale = false,
        tol = (0.0711, 0.117),
        activation = A16G128,
    }
}
