//! Elementary functions on lanes: fused multiply-adds in a fixed order, so the same bits on every
//! instruction set, within 2 units in the last place of the exact value everywhere.
//!
//! Subnormals are values like any other, going in and coming out; infinities and NaN follow IEEE.

use crate::isa::{Isa, LANES};
use std::f32::consts::{LN_2, LOG2_E};

/// `1 / n!`, from `1 / 7!` down to `1 / 1!`.
const EXP: [f32; 7] = [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
/// `ln(2)^n / n!`, from n = 7 down to 1.
const EXP2: [f32; 7] =
    [1.525_273_4e-5, 1.540_353e-4, 1.333_355_8e-3, 9.618_129e-3, 5.550_411e-2, 2.402_265e-1, LN_2];
/// `2 / (2n + 1)`, from n = 5 down to 1: the series of `2 atanh(s) - 2 s` in `s^2`, over `s^3`.
const ATANH: [f32; 5] = [2.0 / 11.0, 2.0 / 9.0, 2.0 / 7.0, 2.0 / 5.0, 2.0 / 3.0];
/// Sine over `r^3`, in `r^2`.
const SIN: [f32; 4] = [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0];
/// Cosine less `1 - r^2 / 2`, over `r^4`, in `r^2`.
const COS: [f32; 4] = [-1.0 / 3_628_800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0];

/// The upper bits of ln 2, few enough that any exponent times them is exact.
const LN2_HIGH: f32 = 0.693_359_4;
/// ln 2 less [`LN2_HIGH`].
const LN2_LOW: f32 = -2.121_944_4e-4;
/// The upper bits of 1 / ln 2, and the rest.
const LOG2E_HIGH: f32 = f32::from_bits(0x3fb8_b000);
const LOG2E_LOW: f32 = f32::from_bits(0xb938_9ad4);

/// The first 33 bits of pi / 2: exact times any quarter-turn count below 2^20.
const HALF_PI_HIGH: f64 = f64::from_bits(0x3ff9_21fb_5440_0000);
/// pi / 2 less [`HALF_PI_HIGH`].
const HALF_PI_LOW: f64 = f64::from_bits(0x3dd0_b461_1a62_6331);

/// `coefficients[0] * x^(n - 1) + ... + coefficients[n - 1]`.
#[inline(always)]
fn polynomial<I: Isa, const N: usize>(isa: I, x: I::F32, coefficients: [f32; N]) -> I::F32 {
    let mut value = isa.splat(coefficients[0]);
    for coefficient in &coefficients[1..] {
        value = isa.fma(value, x, isa.splat(*coefficient));
    }
    value
}

/// `value * 2^exponent`, rounded once, for exponents that are whole numbers in -252..=254.
#[inline(always)]
fn scale<I: Isa>(isa: I, value: I::F32, exponent: I::F32) -> I::F32 {
    let exponent = isa.to_i32(exponent);
    let half = isa.sra::<1>(exponent);
    let power = |n| isa.from_bits(isa.shl::<23>(isa.add_i32(n, isa.splat_i32(127))));
    isa.mul(isa.mul(value, power(half)), power(isa.sub_i32(exponent, half)))
}

/// e to the power of each lane.
#[inline(always)]
pub fn exp<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    // Beyond these the result is 0 or infinity, and stays so.
    let x = isa.min(isa.max(x, isa.splat(-105.0)), isa.splat(90.0));
    let turns = isa.round(isa.mul(x, isa.splat(LOG2_E)));
    let rest = isa.fma(turns, isa.splat(-LN2_HIGH), x);
    let rest = isa.fma(turns, isa.splat(-LN2_LOW), rest);
    let value = isa.fma(polynomial(isa, rest, EXP), rest, isa.splat(1.0));
    scale(isa, value, turns)
}

/// 2 to the power of each lane.
#[inline(always)]
pub fn exp2<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let x = isa.min(isa.max(x, isa.splat(-152.0)), isa.splat(129.0));
    let whole = isa.round(x);
    let rest = isa.sub(x, whole);
    let value = isa.fma(polynomial(isa, rest, EXP2), rest, isa.splat(1.0));
    scale(isa, value, whole)
}

/// A positive number as `2^exponent * (1 + fraction)`, `1 + fraction` between the roots of 1/2 and
/// 2, with the terms that both logarithms share.
struct Log<F> {
    exponent: F,
    fraction: F,
    half_square: F,
    /// `ln(1 + fraction) - fraction + half_square`.
    rest: F,
}

#[inline(always)]
fn split_log<I: Isa>(isa: I, x: I::F32) -> Log<I::F32> {
    let subnormal = isa.lt(x, isa.splat(f32::MIN_POSITIVE));
    let x = isa.select(subnormal, isa.mul(x, isa.splat(33_554_432.0)), x);
    let base = isa.select(subnormal, isa.splat(-25.0), isa.splat(0.0));
    // Counted from the root of 1/2, so that the exponent field says which power of two is nearest.
    let root = isa.splat_i32(0x3f35_04f3);
    let offset = isa.sub_i32(isa.bits(x), root);
    let exponent = isa.add(isa.to_f32(isa.sra::<23>(offset)), base);
    let mantissa = isa.add_i32(isa.and(offset, isa.splat_i32(0x007f_ffff)), root);
    let fraction = isa.sub(isa.from_bits(mantissa), isa.splat(1.0));
    let s = isa.div(fraction, isa.add(fraction, isa.splat(2.0)));
    let square = isa.mul(s, s);
    let series = isa.mul(square, polynomial(isa, square, ATANH));
    let half_square = isa.mul(isa.mul(fraction, fraction), isa.splat(0.5));
    Log { exponent, fraction, half_square, rest: isa.mul(s, isa.add(half_square, series)) }
}

/// `value` where `x` is an ordinary positive number; what IEEE asks for elsewhere.
#[inline(always)]
fn log_edges<I: Isa>(isa: I, x: I::F32, value: I::F32) -> I::F32 {
    let infinity = isa.splat(f32::INFINITY);
    let zero = isa.splat(0.0);
    // Infinity and NaN are their own logarithms.
    let value = isa.select(isa.lt(x, infinity), value, x);
    let value = isa.select(isa.lt(x, zero), isa.splat(f32::NAN), value);
    isa.select(isa.eq(x, zero), isa.splat(f32::NEG_INFINITY), value)
}

/// The natural logarithm of each lane.
#[inline(always)]
pub fn ln<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let log = split_log(isa, x);
    let low = isa.fma(log.exponent, isa.splat(LN2_LOW), log.rest);
    let small = isa.sub(isa.sub(log.half_square, low), log.fraction);
    log_edges(isa, x, isa.fma(log.exponent, isa.splat(LN2_HIGH), isa.neg(small)))
}

/// The logarithm of base 2 of each lane.
#[inline(always)]
pub fn log2<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let log = split_log(isa, x);
    // The larger part keeps few enough bits that its product with the constant's is exact.
    let high = isa.sub(log.fraction, log.half_square);
    let high = isa.from_bits(isa.and(isa.bits(high), isa.splat_i32(-4096)));
    let low = isa.add(isa.sub(isa.sub(log.fraction, high), log.half_square), log.rest);
    let value = isa.mul(isa.add(low, high), isa.splat(LOG2E_LOW));
    let value = isa.fma(low, isa.splat(LOG2E_HIGH), value);
    let large = isa.mul(high, isa.splat(LOG2E_HIGH));
    // The exponent, if not zero, is the larger of the two: what its sum with `large` loses is kept.
    let sum = isa.add(log.exponent, large);
    let lost = isa.sub(large, isa.sub(sum, log.exponent));
    let lost = isa.select(isa.eq(log.exponent, isa.splat(0.0)), isa.splat(0.0), lost);
    log_edges(isa, x, isa.add(sum, isa.add(value, lost)))
}

/// Lanes less the nearest multiple of pi / 2, and which multiple it is.
///
/// Reduced in f64 without fused steps: exact to f32 up to 2^20 quarter turns, and off by
/// `|x| * 2^-53` beyond.
#[inline(always)]
#[expect(clippy::cast_possible_truncation, reason = "the rest is below 1, turns are taken mod 4")]
fn reduce<I: Isa>(isa: I, x: I::F32) -> (I::F32, I::I32) {
    let mut lanes = [0.0; LANES];
    isa.store(x, &mut lanes);
    let mut rest = [0.0; LANES];
    let mut turns = [0; LANES];
    for i in 0..LANES {
        let x = f64::from(lanes[i]);
        let count = (x * std::f64::consts::FRAC_2_PI).round_ties_even();
        let low = (x - count * HALF_PI_HIGH) - count * HALF_PI_LOW;
        // Past 2^53 nothing is left to reduce by: any value of the right range will do.
        rest[i] = low.clamp(-0.8, 0.8) as f32;
        turns[i] = (count - 4.0 * (count * 0.25).floor()) as i32;
    }
    (isa.load(&rest), isa.load_i32(&turns))
}

/// Sine where `turns` is even and cosine where it is odd, negated where bit 1 of it is set.
#[inline(always)]
fn sin_cos<I: Isa>(isa: I, rest: I::F32, turns: I::I32) -> I::F32 {
    let square = isa.mul(rest, rest);
    let cube = isa.mul(square, rest);
    let sine = isa.fma(cube, polynomial(isa, square, SIN), rest);
    let cosine = isa.fma(square, isa.splat(-0.5), isa.splat(1.0));
    let cosine = isa.fma(isa.mul(square, square), polynomial(isa, square, COS), cosine);
    let even = isa.eq_i32(isa.and(turns, isa.splat_i32(1)), isa.splat_i32(0));
    let sign = isa.shl::<30>(isa.and(turns, isa.splat_i32(2)));
    isa.from_bits(isa.xor(isa.bits(isa.select(even, sine, cosine)), sign))
}

/// The sine of each lane; see [`cos`].
#[inline(always)]
pub fn sin<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let (rest, turns) = reduce(isa, x);
    // Zero keeps its sign, which the reduction may lose.
    isa.select(isa.eq(x, isa.splat(0.0)), x, sin_cos(isa, rest, turns))
}

/// The cosine of each lane, within 2 units up to 1.6 million, and off by `|x| * 2^-53` beyond.
#[inline(always)]
pub fn cos<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    let (rest, turns) = reduce(isa, x);
    sin_cos(isa, rest, isa.add_i32(turns, isa.splat_i32(1)))
}

/// One over the square root of each lane.
#[inline(always)]
pub fn rsqrt<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    isa.div(isa.splat(1.0), isa.sqrt(x))
}

/// One over each lane.
#[inline(always)]
pub fn recip<I: Isa>(isa: I, x: I::F32) -> I::F32 {
    isa.div(isa.splat(1.0), x)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::isa::{AnyIsa, WithIsa};

    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        Exp2,
        Ln,
        Log2,
        Sin,
        Cos,
        Rsqrt,
        Recip,
    }
    use Function::*;

    struct Apply<'a>(Function, &'a [f32]);

    impl WithIsa for Apply<'_> {
        type Output = Vec<f32>;

        #[inline(always)]
        fn call<I: Isa>(self, isa: I) -> Vec<f32> {
            let mut out = Vec::new();
            for chunk in self.1.chunks(LANES) {
                let x = isa.load_first(chunk);
                let y = match self.0 {
                    Exp => exp(isa, x),
                    Exp2 => exp2(isa, x),
                    Ln => ln(isa, x),
                    Log2 => log2(isa, x),
                    Sin => sin(isa, x),
                    Cos => cos(isa, x),
                    Rsqrt => rsqrt(isa, x),
                    Recip => recip(isa, x),
                };
                let mut lanes = [0.0; LANES];
                isa.store(y, &mut lanes);
                out.extend_from_slice(&lanes[..chunk.len()]);
            }
            out
        }
    }

    fn exact(function: Function, x: f64) -> f64 {
        match function {
            Exp => x.exp(),
            Exp2 => x.exp2(),
            Ln => x.ln(),
            Log2 => x.log2(),
            Sin => x.sin(),
            Cos => x.cos(),
            Rsqrt => 1.0 / x.sqrt(),
            Recip => 1.0 / x,
        }
    }

    /// Distance from the exact value in units of the last place of an f32 of its size.
    fn ulps(got: f32, want: f64) -> f64 {
        #[expect(clippy::cast_possible_truncation, reason = "rounds")]
        let rounded = want as f32;
        if got.to_bits() == rounded.to_bits() || (got.is_nan() && rounded.is_nan()) {
            return 0.0;
        }
        if !got.is_finite() || !rounded.is_finite() {
            return f64::INFINITY;
        }
        let unit = want.abs().max(f64::from(f32::MIN_POSITIVE)).log2().floor() - 23.0;
        (f64::from(got) - want).abs() / unit.exp2()
    }

    fn check(function: Function, inputs: &[f32]) {
        let scalar = AnyIsa::available()[0].run(Apply(function, inputs));
        for isa in AnyIsa::available() {
            let got = isa.run(Apply(function, inputs));
            for ((x, got), scalar) in inputs.iter().zip(&got).zip(&scalar) {
                let error = ulps(*got, exact(function, f64::from(*x)));
                assert!(error <= 2.0, "{function:?}({x:e}) = {got:e}: {error} units on {isa:?}");
                let same = got.to_bits() == scalar.to_bits() || got.is_nan() && scalar.is_nan();
                assert!(same, "{function:?}({x:e}): {got:e} on {isa:?}, {scalar:e} on scalar");
            }
        }
    }

    /// Bit patterns of every size and sign, and the awkward ones.
    fn patterns() -> Vec<f32> {
        let mut values: Vec<f32> = (0..=u32::MAX).step_by(65_521).map(f32::from_bits).collect();
        values.extend([0.0, -0.0, 1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX]);
        values.extend([f32::from_bits(1), f32::MIN_POSITIVE, -f32::MIN_POSITIVE]);
        values
    }

    fn between(low: f32, high: f32, count: u16) -> Vec<f32> {
        (0..=count).map(|i| low + (high - low) * f32::from(i) / f32::from(count)).collect()
    }

    #[test]
    fn exponentials() {
        for function in [Exp, Exp2] {
            check(function, &patterns());
            check(function, &between(-1.0, 1.0, 20_000));
            check(function, &between(-152.0, 130.0, 40_000));
        }
    }

    #[test]
    fn logarithms() {
        for function in [Ln, Log2] {
            check(function, &patterns());
            check(function, &between(0.5, 2.0, 60_000));
            check(function, &between(0.999, 1.001, 20_000));
        }
    }

    #[test]
    fn sines() {
        let patterns: Vec<f32> =
            patterns().into_iter().filter(|x| x.abs() < 1.6e6 || !x.is_finite()).collect();
        for function in [Sin, Cos] {
            check(function, &patterns);
            check(function, &between(-10.0, 10.0, 40_000));
            check(function, &between(0.0, 1.0e6, 60_000));
        }
    }

    #[test]
    fn huge_angles_stay_in_range() {
        let inputs = [1e9, 1e20, f32::MAX, -f32::MAX];
        for isa in AnyIsa::available() {
            for y in isa.run(Apply(Sin, &inputs)).iter().chain(&isa.run(Apply(Cos, &inputs))) {
                assert!(y.abs() <= 1.0, "{isa:?}: {y}");
            }
        }
    }

    #[test]
    fn reciprocals() {
        check(Rsqrt, &patterns());
        check(Recip, &patterns());
    }
}
