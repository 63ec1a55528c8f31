//! Activations that meet four-bit weights: sixteen-bit integers, an f32 scale for each group of a
//! row, as wide as the group of the weights. A processor multiplies them as integers, exactly.
//!
//! The largest code is 32639 and not 32767: so a code is two signed bytes, `256 * high + low`, which
//! reach `256 * 127 + 127`, and a processor that multiplies bytes takes one at a time.

use super::number::I16;
use tessera_kernel_dsl::block_format;

macro_rules! sixteen_bit {
    ($($doc:literal $marker:ident = $name:literal: $group:literal, $tol:literal;)*) => {$(
        block_format! {
            #[doc = $doc]
            pub $marker = $name {
                element = I16,
                scale = F32 per (1, $group), ragged = true,
                divisor = 32639.0, precision = F32,
                zero_point = false, tensor_scale = false,
                tol = (0.0000155, $tol),
                activation = self,
            }
        }
    )*};
}

sixteen_bit! {
    "Groups of 16." A16G16 = "a16-g16": 16, 0.0000185;
    "Groups of 32." A16G32 = "a16-g32": 32, 0.0000213;
    "Groups of 128." A16G128 = "a16-g128": 128, 0.0000259;
}
