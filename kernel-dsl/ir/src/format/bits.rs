//! Codes to f32 with shifts and one product: the rule that vector code on any target follows.

use super::Float;

/// How the bits of a code become those of an f32, for every code there is:
///
/// ```text
/// sign      = (code & sign_mask) << sign_shift
/// magnitude = max((code & magnitude_mask) << magnitude_shift, floor)          unsigned integers
/// value     = f32(sign | bits(f32(magnitude) * multiplier))                   exact: 2^n
/// special   : code & magnitude_mask > above is NaN, or infinity if it equals inf; with the sign
/// ```
/// The product scales subnormal f32 values where codes are subnormal, so a target must not flush
/// them to zero.
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "the formula above names them all")]
pub struct FloatBits {
    pub sign_mask: u32,
    pub sign_shift: u32,
    pub magnitude_mask: u32,
    pub magnitude_shift: u32,
    /// 0 but for powers of two without a zero, whose code 0 is the subnormal `2^-127`.
    pub floor: u32,
    /// A power of two. Where it is 1, the product is to be left out: it would quiet a NaN.
    pub multiplier: f32,
    /// What the shifts get wrong; `None` where they carry infinity and NaN over.
    pub special: Option<Special>,
}

/// Codes that stand for no finite value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Special {
    /// Codes, the sign masked out, above this one.
    pub above: u32,
    /// The one among them that is infinity; the others are NaN.
    pub inf: Option<u32>,
}

impl FloatBits {
    /// Binary32: nothing to do.
    pub const F32: Self = Self {
        sign_mask: 1 << 31,
        sign_shift: 0,
        magnitude_mask: u32::MAX >> 1,
        magnitude_shift: 0,
        floor: 0,
        multiplier: 1.0,
        special: None,
    };

    /// Powers of two: `2^(code - 127)`, code 255 is NaN.
    pub(super) const UE8M0: Self = Self {
        sign_mask: 0,
        sign_shift: 0,
        magnitude_mask: 255,
        magnitude_shift: 23,
        floor: 1 << 22,
        multiplier: 1.0,
        special: Some(Special { above: 254, inf: None }),
    };

    /// The rule, followed.
    #[inline]
    pub const fn decode(&self, code: u32) -> f32 {
        let sign = (code & self.sign_mask) << self.sign_shift;
        let stored = code & self.magnitude_mask;
        if let Some(special) = self.special
            && stored > special.above
        {
            let is_inf = matches!(special.inf, Some(inf) if inf == stored);
            return f32::from_bits(sign | if is_inf { 0x7f80_0000 } else { 0x7fc0_0000 });
        }
        let shifted = stored << self.magnitude_shift;
        let magnitude = if shifted > self.floor { shifted } else { self.floor };
        if self.multiplier.to_bits() == 1.0f32.to_bits() {
            return f32::from_bits(sign | magnitude);
        }
        f32::from_bits(sign | (f32::from_bits(magnitude) * self.multiplier).to_bits())
    }
}

impl Float {
    /// The rule of a small float: exponent and mantissa go to the top of an f32's, and the product
    /// makes up for the difference of the biases.
    pub const fn bits_rule(&self) -> FloatBits {
        let sign_shift = self.sign_shift();
        // With the exponent of f32, infinity and NaN have the place they have there.
        let carried = self.is_carried();
        let all = (1 << sign_shift) - 1;
        let special = if carried || self.max == all {
            None
        } else {
            Some(Special { above: self.max, inf: self.inf })
        };
        FloatBits {
            sign_mask: 1 << sign_shift,
            sign_shift: 31 - sign_shift,
            magnitude_mask: all,
            magnitude_shift: 23 - self.man,
            floor: 0,
            multiplier: f32::from_bits((254 - self.bias) << 23),
            special,
        }
    }
}
