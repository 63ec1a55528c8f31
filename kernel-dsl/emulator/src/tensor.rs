//! The numbers of tensor cores.
//!
//! A dot product with an addend is one step: every product and the addend are aligned to the
//! largest exponent among them, cut to a fixed number of fractional bits, summed exactly, and the
//! sum is rounded once. That, and the numbers of bits, are what arXiv 2511.10909 found by
//! experiment (`microsoft/MMA-Sim`, MIT); the code here is written from the description.

use crate::number::{F16, F32, Format, Round, Specials};

/// Fractional bits that are kept when terms are aligned, and where the number is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) fraction: i32,
    pub(crate) result: Rounded,
}

/// What a sum is rounded to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rounded {
    /// f32, towards zero.
    F32,
    /// f16, to nearest.
    F16,
}

/// `mma.sync` of f16, bf16 and tf32 with f32 results on sm_90 and sm_100: MMA-Sim, table of
/// architectures, `Hopper` and `Blackwell`.
pub(crate) const MMA_F32: Model = Model { fraction: 25, result: Rounded::F32 };
/// The same with f16 results.
pub(crate) const MMA_F16: Model = Model { fraction: 25, result: Rounded::F16 };

/// The exponent that hardware gives to zero.
const ZERO_EXPONENT: i32 = -126;

/// A factor or an addend, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Term {
    /// With its sign; `fraction` bits of it lie behind the point.
    significand: i64,
    exponent: i32,
    special: Special,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Special {
    #[default]
    Finite,
    Infinite,
    Nan,
}

/// Takes a code apart.
pub(crate) fn term(format: Format, code: u64) -> Term {
    let negative = code >> (format.bits() - 1) & 1 == 1;
    let field = (code & format.exponent_mask()) >> format.mantissa;
    let fraction = code & ((1 << format.mantissa) - 1);
    let top = format.exponent_mask() >> format.mantissa;
    if format.specials == Specials::Ieee && field == top {
        let special = if fraction == 0 { Special::Infinite } else { Special::Nan };
        return Term { significand: if negative { -1 } else { 1 }, exponent: 0, special };
    }
    let magnitude = match field {
        0 => fraction,
        _ => fraction | 1 << format.mantissa,
    } as i64;
    let exponent = match magnitude {
        0 => ZERO_EXPONENT,
        _ => (field.max(1)) as i32 - format.bias,
    };
    let significand = if negative { -magnitude } else { magnitude };
    Term { significand, exponent, special: Special::Finite }
}

/// What infinities and NaN make of a sum.
#[derive(Clone, Copy, Default)]
struct Infinities {
    positive: bool,
    negative: bool,
    nan: bool,
}

impl Infinities {
    fn add(&mut self, negative: bool) {
        match negative {
            true => self.negative = true,
            false => self.positive = true,
        }
    }

    fn product(&mut self, a: &Term, b: &Term) {
        let infinite = a.special == Special::Infinite || b.special == Special::Infinite;
        let nan = a.special == Special::Nan || b.special == Special::Nan;
        if nan || infinite && (a.significand == 0 || b.significand == 0) {
            self.nan = true;
        } else if infinite {
            self.add((a.significand < 0) != (b.significand < 0));
        }
    }

    fn addend(&mut self, c: &Term) {
        match c.special {
            Special::Finite => {}
            Special::Infinite => self.add(c.significand < 0),
            Special::Nan => self.nan = true,
        }
    }

    /// The code of the result, if it is no number.
    fn result(self, format: Format) -> Option<u64> {
        let infinity = format.exponent_mask();
        match (self.positive, self.negative) {
            _ if self.nan => Some(format.nan()),
            (true, true) => Some(format.nan()),
            (true, false) => Some(infinity),
            (false, true) => Some(infinity | 1 << (format.bits() - 1)),
            (false, false) => None,
        }
    }
}

/// Shifts a magnitude, cutting bits off towards zero.
fn align(significand: i64, shift: i32) -> i64 {
    match shift {
        0.. => significand << shift,
        -63..=-1 => {
            let cut = (significand.unsigned_abs() >> -shift) as i64;
            if significand < 0 { -cut } else { cut }
        }
        _ => 0,
    }
}

/// The code of `c + sum(a * b)`. `mantissa` is that of the factors, `addend` the format of `c`.
pub(crate) fn dot(
    model: Model,
    mantissa: u32,
    (a, b): (&[Term], &[Term]),
    (addend, c): (Format, u64),
) -> u64 {
    let format = match model.result {
        Rounded::F32 => F32,
        Rounded::F16 => F16,
    };
    let c = term(addend, c);
    let mut largest = c.exponent;
    let mut finite = c.special == Special::Finite;
    for (a, b) in a.iter().zip(b) {
        largest = largest.max(a.exponent + b.exponent);
        finite &= a.special == Special::Finite && b.special == Special::Finite;
    }
    if !finite {
        let mut infinities = Infinities::default();
        infinities.addend(&c);
        a.iter().zip(b).for_each(|(a, b)| infinities.product(a, b));
        if let Some(code) = infinities.result(format) {
            return code;
        }
    }
    let from_product = model.fraction - 2 * mantissa as i32 - largest;
    let products = a
        .iter()
        .zip(b)
        .map(|(a, b)| align(a.significand * b.significand, a.exponent + b.exponent + from_product));
    let from_addend = model.fraction - addend.mantissa as i32 - largest;
    let sum = products.sum::<i64>() + align(c.significand, c.exponent + from_addend);
    round(format, sum, largest - model.fraction)
}

/// Rounds a sum; what underflows loses its sign.
fn round(format: Format, sum: i64, exponent: i32) -> u64 {
    let round = if format == F32 { Round::Zero } else { Round::Nearest };
    let magnitude = sum.unsigned_abs();
    if format == F32 && magnitude != 0 {
        let top = 63 - magnitude.leading_zeros() as i32 + exponent;
        if top >= 128 {
            return format.exponent_mask() | if sum < 0 { 1 << 31 } else { 0 };
        }
    }
    let code = format.encode_parts(sum < 0, u128::from(magnitude), exponent, (round, false));
    let unsigned = code & ((1 << (format.bits() - 1)) - 1);
    if unsigned == 0 { 0 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{BF16, TF32};

    fn one(format: Format, a: &[f64], b: &[f64], c: f32) -> f32 {
        let terms = |values: &[f64]| -> Vec<Term> {
            let code = |&value: &f64| format.encode(value, Round::Nearest, false);
            values.iter().map(|value| term(format, code(value))).collect()
        };
        let (a, b) = (terms(a), terms(b));
        let c = (F32, u64::from(c.to_bits()));
        f32::from_bits(dot(MMA_F32, format.mantissa, (&a, &b), c) as u32)
    }

    #[test]
    fn small_sums_are_exact() {
        assert_eq!(one(F16, &[1.5, -2.0], &[3.0, 0.25], 10.0), 14.0);
        assert_eq!(one(BF16, &[1e-30, 1.0], &[1e10, 2.0], 0.0), 2.0);
        assert_eq!(one(TF32, &[0.1; 4], &[0.0; 4], -3.25), -3.25);
    }

    #[test]
    fn what_lies_below_the_kept_bits_is_cut() {
        let tiny = 2f64.powi(-14);
        // 2^-28 beside 1: the model keeps 25 bits, so sixteen of them still vanish.
        let mut a = [tiny; 16];
        assert_eq!(one(F16, &a, &[tiny; 16], 1.0), 1.0);
        a[0] = 1.0;
        let mut b = [tiny; 16];
        b[0] = 1.0;
        assert_eq!(one(F16, &a, &b, -1.0), 0.0);
    }

    #[test]
    fn results_are_rounded_towards_zero() {
        let step = 2f32.powi(-23);
        let half = 2f64.powi(-12);
        assert_eq!(one(F16, &[half], &[half], 1.0), 1.0);
        assert_eq!(one(F16, &[half * 3.0], &[half], 1.0), 1.0 + step);
        assert_eq!(one(F16, &[half * 3.0], &[-half], -1.0), -1.0 - step);
    }

    #[test]
    fn infinities_and_nan_come_through() {
        let inf = f64::INFINITY;
        assert_eq!(one(F16, &[inf], &[2.0], 1.0), f32::INFINITY);
        assert_eq!(one(F16, &[inf], &[-2.0], 1.0), f32::NEG_INFINITY);
        assert!(one(F16, &[inf], &[0.0], 1.0).is_nan());
        assert!(one(F16, &[inf, inf], &[1.0, -1.0], 1.0).is_nan());
        assert!(one(F16, &[1.0], &[1.0], f32::NAN).is_nan());
        assert_eq!(one(BF16, &[3e38; 2], &[3e38; 2], 0.0), f32::INFINITY);
    }
}
