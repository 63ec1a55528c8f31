//! OCP MXFP4: FP4 E2M1 with a power-of-two scale for each 32 elements of a row.
//!
//! The scale is `2^(floor(log2 amax) - 2)`, so the largest elements of a group may saturate.

use super::activation::A16G32;
use super::number::E2M1;
use tessera_kernel_dsl::block_format;

block_format! {
    /// `mxfp4`.
    pub Mxfp4 = "mxfp4" {
        element = E2M1,
        scale = Ue8m0 per (1, 32), ragged = false,
        divisor = 4.0, precision = Ue8m0,
        zero_point = false, tensor_scale = false,
        tol = (0.25, 0.121),
        activation = A16G32,
    }
}
