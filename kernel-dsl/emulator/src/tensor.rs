//! The numbers of tensor cores.
//!
//! A dot product with an addend is one step: every product and the addend are aligned to the
//! largest exponent among them, cut to a fixed number of fractional bits, summed exactly, and the
//! sum is rounded once. That, and the numbers of bits, are what arXiv 2511.10909 found by
//! experiment (`microsoft/MMA-Sim`, MIT); the code here is written from the description.

use crate::number::{F16, F32, Format, Round, Specials, power};

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
    /// f32 of which thirteen bits of the mantissa are kept, towards zero.
    Short,
    /// f16, to nearest.
    F16,
}

/// `mma.sync` of f16, bf16 and tf32 with f32 results on sm_90 and sm_100: MMA-Sim, table of
/// architectures, `Hopper` and `Blackwell`.
pub(crate) const MMA_F32: Model = Model { fraction: 25, result: Rounded::F32 };
/// The same with f16 results.
pub(crate) const MMA_F16: Model = Model { fraction: 25, result: Rounded::F16 };

/// `wgmma` of eight-bit floats on sm_90; MMA-Sim, `wgmma`. Its other types are as `mma.sync`.
pub(crate) const WGMMA_EIGHT: Model = Model { fraction: 13, result: Rounded::Short };
/// The same with f16 results.
pub(crate) const WGMMA_EIGHT_F16: Model = Model { fraction: 13, result: Rounded::F16 };

/// The exponent that hardware gives to zero.
const ZERO_EXPONENT: i32 = -126;

/// A factor or an addend, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Term {
    /// With its sign; as many bits of it as the format's mantissa has lie behind the point.
    significand: i32,
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

impl Term {
    /// The number it is, if it is finite.
    fn value(&self, mantissa: u32) -> f64 {
        f64::from(self.significand) * power(self.exponent - mantissa as i32)
    }
}

/// Takes a code apart.
fn term(format: Format, code: u64) -> Term {
    let negative = code >> (format.bits() - 1) & 1 == 1;
    let field = (code & format.exponent_mask()) >> format.mantissa;
    let fraction = code & ((1 << format.mantissa) - 1);
    let top = format.exponent_mask() >> format.mantissa;
    if format.specials == Specials::Ieee && field == top {
        let special = if fraction == 0 { Special::Infinite } else { Special::Nan };
        return Term { significand: if negative { -1 } else { 1 }, exponent: 0, special };
    }
    let all_ones = code & (format.nan()) == format.nan();
    if format.specials == Specials::NanOnly && all_ones {
        return Term { significand: 1, exponent: 0, special: Special::Nan };
    }
    let magnitude = match field {
        0 => fraction,
        _ => fraction | 1 << format.mantissa,
    } as i32;
    let exponent = match magnitude {
        0 => ZERO_EXPONENT,
        _ => (field.max(1)) as i32 - format.bias,
    };
    let significand = if negative { -magnitude } else { magnitude };
    Term { significand, exponent, special: Special::Finite }
}

/// The rows of A or the columns of B, taken apart.
pub(crate) struct Factors {
    depth: usize,
    terms: Vec<Term>,
    values: Vec<f64>,
    exponents: Vec<i32>,
    finite: bool,
}

impl Factors {
    /// Takes codes apart, `depth` of them for each line.
    pub(crate) fn new(format: Format, depth: usize, codes: impl Iterator<Item = u64>) -> Factors {
        let terms: Vec<Term> = codes.map(|code| term(format, code)).collect();
        Factors {
            depth,
            values: terms.iter().map(|term| term.value(format.mantissa)).collect(),
            exponents: terms.iter().map(|term| term.exponent).collect(),
            finite: terms.iter().all(|term| term.special == Special::Finite),
            terms,
        }
    }

    fn range(&self, line: usize) -> std::ops::Range<usize> {
        line * self.depth..(line + 1) * self.depth
    }
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

/// The largest exponent of the products of two lines, or of the addend.
fn largest_exponent(a: &[i32], b: &[i32], addend: i32) -> i32 {
    let mut largest = addend;
    for (a, b) in a.iter().zip(b) {
        largest = largest.max(a.wrapping_add(*b));
    }
    largest
}

/// The code of `c` plus the product of a row of A and a column of B.
pub(crate) fn dot(
    model: Model,
    (a, row): (&Factors, usize),
    (b, column): (&Factors, usize),
    (addend, c): (Format, u64),
) -> u64 {
    let format = match model.result {
        Rounded::F32 | Rounded::Short => F32,
        Rounded::F16 => F16,
    };
    let c = term(addend, c);
    let (row, column) = (a.range(row), b.range(column));
    if !a.finite || !b.finite || c.special != Special::Finite {
        let mut infinities = Infinities::default();
        infinities.addend(&c);
        let pairs = a.terms[row.clone()].iter().zip(&b.terms[column.clone()]);
        pairs.for_each(|(a, b)| infinities.product(a, b));
        if let Some(code) = infinities.result(format) {
            return code;
        }
    }
    let (ea, eb) = (&a.exponents[row.clone()], &b.exponents[column.clone()]);
    let largest = largest_exponent(ea, eb, c.exponent);
    // Products are exact in f64 and so is their alignment; the cast cuts off towards zero.
    let scale = power(model.fraction - largest);
    let aligned = |value: f64| i64::from((value * scale) as i32);
    let mut sum = aligned(c.value(addend.mantissa));
    for (a, b) in a.values[row].iter().zip(&b.values[column]) {
        sum = sum.wrapping_add(aligned(a * b));
    }
    let code = round(format, sum, largest - model.fraction);
    if model.result == Rounded::Short { shorten(code) } else { code }
}

/// Keeps thirteen bits of an f32's mantissa; what becomes zero loses its sign.
fn shorten(code: u64) -> u64 {
    let kept = code & !0x3ff;
    if kept & 0x7fff_ffff == 0 { 0 } else { kept }
}

/// Rounds a sum; what underflows loses its sign.
fn round(format: Format, sum: i64, exponent: i32) -> u64 {
    let magnitude = sum.unsigned_abs();
    let top = 63 - magnitude.leading_zeros() as i32 + exponent;
    if format == F32 && magnitude != 0 {
        let sign = if sum < 0 { 1 << 31 } else { 0 };
        if top >= 128 {
            return format.exponent_mask() | sign;
        }
        if top >= -126 {
            // The leading one moves to bit 63, then away; bits behind the mantissa are cut off.
            let fraction = magnitude << magnitude.leading_zeros() << 1 >> 41;
            return sign | ((top + 127) as u64) << 23 | fraction;
        }
    }
    let round = if format == F32 { Round::Zero } else { Round::Nearest };
    let code = format.encode_parts(sum < 0, u128::from(magnitude), exponent, (round, false));
    let unsigned = code & ((1 << (format.bits() - 1)) - 1);
    if unsigned == 0 { 0 } else { code }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::number::{BF16, TF32};

    fn one(format: Format, a: &[f64], b: &[f64], c: f32) -> f32 {
        let factors = |values: &[f64]| {
            let codes = values.iter().map(|&value| format.encode(value, Round::Nearest, false));
            Factors::new(format, values.len(), codes)
        };
        let (a, b) = (factors(a), factors(b));
        let c = (F32, u64::from(c.to_bits()));
        f32::from_bits(dot(MMA_F32, (&a, 0), (&b, 0), c) as u32)
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
