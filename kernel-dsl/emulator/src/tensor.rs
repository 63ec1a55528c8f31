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
    /// -1, 0 or 1.
    sign: i32,
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
fn term(format: Format, code: u64) -> Term {
    let sign = if code >> (format.bits() - 1) & 1 == 1 { -1 } else { 1 };
    let magnitude = code & ((1 << (format.bits() - 1)) - 1);
    let least = least_special(format);
    let infinite = format.specials == Specials::Ieee && magnitude == least;
    let special = match magnitude {
        _ if infinite => Special::Infinite,
        magnitude if magnitude >= least => Special::Nan,
        _ => Special::Finite,
    };
    let field = (magnitude >> format.mantissa) as i32;
    match magnitude {
        0 => Term { sign: 0, exponent: ZERO_EXPONENT, special },
        _ => Term { sign, exponent: field.max(1) - format.bias, special },
    }
}

/// The least magnitude that is no number, if a format has one.
fn least_special(format: Format) -> u64 {
    match format.specials {
        Specials::Ieee => format.exponent_mask(),
        Specials::NanOnly => format.nan(),
        Specials::Finite => u64::MAX,
    }
}

/// The rows of A or the columns of B, taken apart.
pub(crate) struct Factors {
    format: Format,
    depth: usize,
    codes: Vec<u64>,
    values: Vec<f64>,
    exponents: Vec<i32>,
    finite: bool,
}

impl Factors {
    /// Takes codes apart, `depth` of them for each line.
    pub(crate) fn new(format: Format, depth: usize, codes: impl Iterator<Item = u64>) -> Factors {
        let codes: Vec<u64> = codes.collect();
        let sign = 1 << (format.bits() - 1);
        let scale = power(1023 - format.bias);
        let special = least_special(format);
        let mut factors = Factors {
            format,
            depth,
            values: Vec::with_capacity(codes.len()),
            exponents: Vec::with_capacity(codes.len()),
            finite: true,
            codes: Vec::new(),
        };
        for &code in &codes {
            let magnitude = code & (sign - 1);
            // With the exponent's field where an f64 has its own, subnormal ones are right, too.
            let moved = magnitude << (52 - format.mantissa);
            let negative = if code & sign == 0 { 0 } else { 1 << 63 };
            factors.values.push(f64::from_bits(moved | negative) * scale);
            let field = (magnitude >> format.mantissa) as i32;
            let exponent = field.max(1).wrapping_sub(format.bias);
            factors.exponents.push(if magnitude == 0 { ZERO_EXPONENT } else { exponent });
            factors.finite &= magnitude < special;
        }
        factors.codes = codes;
        factors
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
        if nan || infinite && (a.sign == 0 || b.sign == 0) {
            self.nan = true;
        } else if infinite {
            self.add(a.sign != b.sign);
        }
    }

    fn addend(&mut self, c: &Term) {
        match c.special {
            Special::Finite => {}
            Special::Infinite => self.add(c.sign < 0),
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

/// Cuts a number off towards zero, if it is smaller than 2^51.
fn cut(value: f64) -> f64 {
    // Beside this number an f64 has no bits behind the point.
    const WHOLE: f64 = (1u64 << 52) as f64;
    let magnitude = value.abs();
    let nearest = magnitude + WHOLE - WHOLE;
    let below = if nearest > magnitude { nearest - 1.0 } else { nearest };
    below.copysign(value)
}

/// The sum of products, each scaled and cut off. The terms are integers, so that their order does
/// not matter.
fn sum_cut(a: &[f64], b: &[f64], scale: f64) -> f64 {
    let mut sums = [0.0; 4];
    for (a, b) in a.chunks_exact(4).zip(b.chunks_exact(4)) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += cut(a * b * scale);
        }
    }
    let rest = a.chunks_exact(4).remainder().iter().zip(b.chunks_exact(4).remainder());
    rest.map(|(a, b)| cut(a * b * scale)).sum::<f64>() + sums.iter().sum::<f64>()
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
    let (c_code, c) = (c, term(addend, c));
    let (row, column) = (a.range(row), b.range(column));
    if !a.finite || !b.finite || c.special != Special::Finite {
        let mut infinities = Infinities::default();
        infinities.addend(&c);
        for (&one, &other) in a.codes[row.clone()].iter().zip(&b.codes[column.clone()]) {
            infinities.product(&term(a.format, one), &term(b.format, other));
        }
        if let Some(code) = infinities.result(format) {
            return code;
        }
    }
    let (ea, eb) = (&a.exponents[row.clone()], &b.exponents[column.clone()]);
    let largest = largest_exponent(ea, eb, c.exponent);
    // Products are exact in f64, and so is their alignment.
    let scale = power(model.fraction - largest);
    let addend = cut(addend.decode(c_code) * scale);
    let sum = (sum_cut(&a.values[row], &b.values[column], scale) + addend) as i64;
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
