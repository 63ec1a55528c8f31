//! OCP MXFP6: FP6 E3M2 with a power-of-two scale for each 32 elements of a row.
//!
//! Four codes in three bytes. The scale is `2^(floor(log2 amax) - 4)`, so the largest elements of a
//! group may saturate.

use super::f32::F32;
use tessera_kernel_dsl::{block_format, number_format};

number_format! {
    /// OCP FP6 E3M2: no infinity, no NaN, largest value 28.
    pub E3M2 = "e3m2": 6 bits {
        float(exp = 3, man = 2, bias = 3, inf = none, nan = none, max = 0x1f), exact_in = f16
    }
}

block_format! {
    /// `mxfp6-e3m2`.
    pub Mxfp6E3M2 = "mxfp6-e3m2" {
        element = E3M2,
        scale = Ue8m0 per (1, 32), ragged = false,
        divisor = 16.0, precision = Ue8m0,
        zero_point = false, tensor_scale = false,
        tol = (0.13, 0.0565),
        activation = F32,
    }
}
