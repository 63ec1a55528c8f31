//! Elements: which value each code of a stored number stands for, and which code a value gets.
//!
//! One policy for every element (ADR 0003): round half to even; saturate to the largest finite
//! value, infinities included; NaN to the element's NaN code. An element without a NaN code
//! cannot hold NaN: callers refuse it before they encode.

use super::{Kind, NumberFormat};
use crate::number_format;
use std::{fmt, hash, ops, ptr};

/// A stored number: a handle of its [`NumberFormat`], which it also derefs to. Formats of one name
/// are the same format.
#[derive(Clone, Copy)]
pub struct Element(&'static NumberFormat);

const F32: NumberFormat = number_format! { "f32": 32 bits { f32, exact_in = f32 } };
const F16: NumberFormat = number_format! { "f16": 16 bits {
    float(exp = 5, man = 10, bias = 15, inf = 0x7c00, nan = 0x7e00, max = 0x7bff), exact_in = f16
} };
const BF16: NumberFormat = number_format! { "bf16": 16 bits {
    float(exp = 8, man = 7, bias = 127, inf = 0x7f80, nan = 0x7fc0, max = 0x7f7f), exact_in = bf16
} };
const E4M3: NumberFormat = number_format! { "e4m3": 8 bits {
    float(exp = 4, man = 3, bias = 7, inf = none, nan = 0x7f, max = 0x7e), exact_in = f16
} };
const E5M2: NumberFormat = number_format! { "e5m2": 8 bits {
    float(exp = 5, man = 2, bias = 15, inf = 0x7c, nan = 0x7e, max = 0x7b), exact_in = f16
} };
const E2M1: NumberFormat = number_format! { "e2m1": 4 bits {
    float(exp = 2, man = 1, bias = 1, inf = none, nan = none, max = 7), exact_in = f16
} };
const I4: NumberFormat = number_format! { "i4": 4 bits { int(bias = 8), exact_in = f16 } };
const I16: NumberFormat = number_format! { "i16": 16 bits { int(bias = 32768), exact_in = f32 } };

impl Element {
    /// IEEE binary32. Encoding changes nothing, so infinities stay.
    pub const F32: Self = Self(&F32);
    /// IEEE binary16.
    pub const F16: Self = Self(&F16);
    /// The upper half of binary32.
    #[expect(non_upper_case_globals, reason = "spelled as the scale type of the same codes")]
    pub const Bf16: Self = Self(&BF16);
    /// OCP FP8 E4M3: no infinity, one NaN code a sign, largest value 448.
    pub const F8E4M3: Self = Self(&E4M3);
    /// OCP FP8 E5M2: IEEE-like, largest value 57344.
    pub const F8E5M2: Self = Self(&E5M2);
    /// OCP FP4 E2M1: no infinity, no NaN, largest value 6.
    pub const F4E2M1: Self = Self(&E2M1);
    /// Four-bit integer `q` in -8..=7, stored as the code `q + 8`.
    pub const I4: Self = Self(&I4);
    /// Sixteen-bit integer `q`, stored as the code `q + 32768`: activations that meet integers.
    pub const I16: Self = Self(&I16);

    /// The element of a number format.
    pub const fn of(format: &'static NumberFormat) -> Self {
        Self(format)
    }

    /// The number format, which the element also derefs to.
    pub const fn format(self) -> &'static NumberFormat {
        self.0
    }

    /// Name in kernels, manifests and generated code.
    pub const fn name(self) -> &'static str {
        self.0.name
    }

    /// Bits of one element.
    #[inline]
    pub const fn bits(self) -> usize {
        self.0.bits
    }

    /// Largest finite value, where encoding saturates.
    pub const fn max(self) -> f32 {
        match self.0.kind {
            Kind::F32 => f32::MAX,
            Kind::Float(float) => self.0.kind.decode(float.max),
            Kind::Int { .. } => self.0.kind.decode(self.0.mask()),
        }
    }

    /// Smallest finite value: the negation of the largest, but one less for integers.
    pub const fn min(self) -> f32 {
        match self.0.kind {
            Kind::F32 | Kind::Float(_) => -self.max(),
            Kind::Int { .. } => self.0.kind.decode(0),
        }
    }

    /// Whether some code stands for NaN.
    pub const fn has_nan(self) -> bool {
        match self.0.kind {
            Kind::F32 => true,
            Kind::Float(float) => float.nan.is_some(),
            Kind::Int { .. } => false,
        }
    }

    /// The value a code stands for. Bits of `code` above [`Element::bits`] are ignored.
    #[inline]
    pub fn decode(self, code: u32) -> f32 {
        let code = code & self.0.mask();
        match self.0.values.get(code as usize) {
            Some(value) => *value,
            None => self.0.kind.decode(code),
        }
    }

    /// The code of the nearest value: half to even, saturating, infinities included.
    ///
    /// NaN gets the element's NaN code. What an element without one ([`Element::has_nan`]) makes of
    /// NaN means nothing, so refuse it first.
    #[inline]
    pub fn encode(self, value: f32) -> u32 {
        match self.0.kind {
            Kind::F32 => value.to_bits(),
            Kind::Float(float) => float.encode(value),
            Kind::Int { bias } => {
                int_code(value.round_ties_even().clamp(self.min(), self.max()) + bias as f32)
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the caller clamped to the codes, of 16 bits or less"
)]
const fn int_code(code: f32) -> u32 {
    code as u32
}

impl ops::Deref for Element {
    type Target = NumberFormat;

    #[inline]
    fn deref(&self) -> &NumberFormat {
        self.0
    }
}

impl PartialEq for Element {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        ptr::eq(self.0, other.0) || self.0.name == other.0.name
    }
}

impl Eq for Element {}

impl hash::Hash for Element {
    fn hash<H: hash::Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl fmt::Debug for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.name)
    }
}
