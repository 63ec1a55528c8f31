//! Four-bit integers with zero points, a bf16 scale for each 128 elements of a row.

use super::activation::A16G128;
use super::number::I4;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `int4-g128-zp`.
    pub Int4G128Zp = "int4-g128-zp" {
        element = I4,
        scale = Bf16 per (1, 128), ragged = false,
        divisor = 15.0, precision = Bf16,
        zero_point = true, tensor_scale = false,
        tol = (0.0711, 0.107),
        activation = A16G128,
    }
}
