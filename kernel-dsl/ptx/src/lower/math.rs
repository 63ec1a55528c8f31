//! Elementary functions: fused multiply-adds in a fixed order, the same as on the CPU's lanes, and
//! so with the same bits; within 2 units in the last place of the exact value.

use super::Lower;
use crate::code::{Class, Operand, Reg};
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
/// The upper bits of ln 2, few enough that any exponent times them is exact; and the rest.
const LN2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
/// The upper bits of 1 / ln 2, and the rest.
const LOG2E: [f32; 2] = [f32::from_bits(0x3fb8_b000), f32::from_bits(0xb938_9ad4)];
/// The first 33 bits of pi / 2, exact times any quarter-turn count below 2^20; and the rest.
const HALF_PI: [f64; 2] =
    [f64::from_bits(0x3ff9_21fb_5440_0000), f64::from_bits(0x3dd0_b461_1a62_6331)];

/// A positive number as `2^exponent * (1 + fraction)`; `rest` is
/// `ln(1 + fraction) - fraction + half_square`.
struct Log {
    exponent: Reg,
    fraction: Reg,
    half_square: Reg,
    rest: Reg,
}

impl Lower<'_> {
    fn f32_op<const N: usize>(&mut self, op: &'static str, sources: [Operand; N]) -> Reg {
        self.code.op(Class::B32, op, sources)
    }

    fn fma(&mut self, a: Reg, b: impl Into<Operand>, c: impl Into<Operand>) -> Reg {
        self.f32_op("fma.rn.f32", [a.into(), b.into(), c.into()])
    }

    fn mul(&mut self, a: Reg, b: impl Into<Operand>) -> Reg {
        self.f32_op("mul.rn.f32", [a.into(), b.into()])
    }

    fn sub(&mut self, a: Reg, b: impl Into<Operand>) -> Reg {
        self.f32_op("sub.rn.f32", [a.into(), b.into()])
    }

    fn plus(&mut self, a: Reg, b: impl Into<Operand>) -> Reg {
        self.f32_op("add.rn.f32", [a.into(), b.into()])
    }

    fn if_else(&mut self, test: Reg, yes: impl Into<Operand>, no: impl Into<Operand>) -> Reg {
        self.f32_op("selp.b32", [yes.into(), no.into(), test.into()])
    }

    fn test(&mut self, op: &'static str, a: Reg, b: f32) -> Reg {
        self.code.op(Class::Pred, op, [a.into(), b.into()])
    }

    fn polynomial(&mut self, x: Reg, coefficients: &[f32]) -> Reg {
        let mut value = self.fma(x, coefficients[0], coefficients[1]);
        for coefficient in &coefficients[2..] {
            value = self.fma(value, x, *coefficient);
        }
        value
    }

    /// `value * 2^exponent`, rounded once, for whole exponents in -252..=254.
    fn scale(&mut self, value: Reg, exponent: Reg) -> Reg {
        let exponent = self.f32_op("cvt.rzi.s32.f32", [exponent.into()]);
        let half = self.f32_op("shr.s32", [exponent.into(), 1.into()]);
        let rest = self.f32_op("sub.s32", [exponent.into(), half.into()]);
        let mut value = value;
        for part in [half, rest] {
            let biased = self.f32_op("add.s32", [part.into(), 127.into()]);
            let power = self.f32_op("shl.b32", [biased.into(), 23.into()]);
            value = self.mul(value, power);
        }
        value
    }

    fn clamp(&mut self, x: Reg, low: f32, high: f32) -> Reg {
        let x = self.f32_op("max.NaN.f32", [x.into(), low.into()]);
        self.f32_op("min.NaN.f32", [x.into(), high.into()])
    }

    pub(crate) fn exp(&mut self, x: Reg) -> Reg {
        // Beyond these the result is 0 or infinity, and stays so.
        let x = self.clamp(x, -105.0, 90.0);
        let turns = self.mul(x, LOG2_E);
        let turns = self.f32_op("cvt.rni.f32.f32", [turns.into()]);
        let rest = self.fma(turns, -LN2[0], x);
        let rest = self.fma(turns, -LN2[1], rest);
        let series = self.polynomial(rest, &EXP);
        let value = self.fma(series, rest, 1.0_f32);
        self.scale(value, turns)
    }

    pub(crate) fn exp2(&mut self, x: Reg) -> Reg {
        let x = self.clamp(x, -152.0, 129.0);
        let whole = self.f32_op("cvt.rni.f32.f32", [x.into()]);
        let rest = self.sub(x, whole);
        let series = self.polynomial(rest, &EXP2);
        let value = self.fma(series, rest, 1.0_f32);
        self.scale(value, whole)
    }

    fn split_log(&mut self, x: Reg) -> Log {
        let subnormal = self.test("setp.lt.f32", x, f32::MIN_POSITIVE);
        let scaled = self.mul(x, 33_554_432.0_f32);
        let x = self.if_else(subnormal, scaled, x);
        let base = self.if_else(subnormal, -25.0_f32, 0.0_f32);
        // Counted from the root of 1/2, so that the exponent field says which power of two is
        // nearest.
        let root = Operand::Int(0x3f35_04f3);
        let offset = self.f32_op("sub.s32", [x.into(), root.clone()]);
        let whole = self.f32_op("shr.s32", [offset.into(), 23.into()]);
        let whole = self.f32_op("cvt.rn.f32.s32", [whole.into()]);
        let exponent = self.plus(whole, base);
        let mantissa = self.f32_op("and.b32", [offset.into(), Operand::Int(0x007f_ffff)]);
        let mantissa = self.f32_op("add.s32", [mantissa.into(), root]);
        let fraction = self.sub(mantissa, 1.0_f32);
        let sum = self.plus(fraction, 2.0_f32);
        let s = self.f32_op("div.rn.f32", [fraction.into(), sum.into()]);
        let square = self.mul(s, s);
        let series = self.polynomial(square, &ATANH);
        let series = self.mul(square, series);
        let half_square = self.mul(fraction, fraction);
        let half_square = self.mul(half_square, 0.5_f32);
        let rest = self.plus(half_square, series);
        let rest = self.mul(s, rest);
        Log { exponent, fraction, half_square, rest }
    }

    /// `value` where `x` is an ordinary positive number; what IEEE asks for elsewhere.
    fn log_edges(&mut self, x: Reg, value: Reg) -> Reg {
        // Infinity and NaN are their own logarithms.
        let finite = self.test("setp.lt.f32", x, f32::INFINITY);
        let value = self.if_else(finite, value, x);
        let negative = self.test("setp.lt.f32", x, 0.0);
        let value = self.if_else(negative, f32::NAN, value);
        let zero = self.test("setp.eq.f32", x, 0.0);
        self.if_else(zero, f32::NEG_INFINITY, value)
    }

    pub(crate) fn ln(&mut self, x: Reg) -> Reg {
        let log = self.split_log(x);
        let low = self.fma(log.exponent, LN2[1], log.rest);
        let small = self.sub(log.half_square, low);
        let small = self.sub(small, log.fraction);
        let minus = self.f32_op("neg.f32", [small.into()]);
        let value = self.fma(log.exponent, LN2[0], minus);
        self.log_edges(x, value)
    }

    pub(crate) fn log2(&mut self, x: Reg) -> Reg {
        let log = self.split_log(x);
        // The larger part keeps few enough bits that its product with the constant's is exact.
        let high = self.sub(log.fraction, log.half_square);
        let high = self.f32_op("and.b32", [high.into(), Operand::Int(0xffff_f000)]);
        let low = self.sub(log.fraction, high);
        let low = self.sub(low, log.half_square);
        let low = self.plus(low, log.rest);
        let value = self.plus(low, high);
        let value = self.mul(value, LOG2E[1]);
        let value = self.fma(low, LOG2E[0], value);
        let large = self.mul(high, LOG2E[0]);
        // The exponent, if not zero, is the larger of the two: what its sum with `large` loses
        // is kept.
        let sum = self.plus(log.exponent, large);
        let lost = self.sub(sum, log.exponent);
        let lost = self.sub(large, lost);
        let whole = self.test("setp.eq.f32", log.exponent, 0.0);
        let lost = self.if_else(whole, 0.0_f32, lost);
        let value = self.plus(value, lost);
        let value = self.plus(sum, value);
        self.log_edges(x, value)
    }

    /// `x` less the nearest multiple of pi / 2, and which multiple it is, modulo 4.
    ///
    /// Reduced in f64 without fused steps: exact to f32 up to 2^20 quarter turns, and off by
    /// `|x| * 2^-53` beyond.
    fn reduce_angle(&mut self, x: Reg) -> [Reg; 2] {
        let f64_op = |lower: &mut Self, op: &'static str, sources: [Operand; 2]| {
            lower.code.op(Class::B64, op, sources)
        };
        let number = |value: f64| Operand::F64(value.to_bits());
        let x = self.code.op(Class::B64, "cvt.f64.f32", [x.into()]);
        let turns = f64_op(self, "mul.rn.f64", [x.into(), number(std::f64::consts::FRAC_2_PI)]);
        let count = self.code.op(Class::B64, "cvt.rni.f64.f64", [turns.into()]);
        let mut low = x;
        for part in HALF_PI {
            let whole = f64_op(self, "mul.rn.f64", [count.into(), number(part)]);
            low = f64_op(self, "sub.rn.f64", [low.into(), whole.into()]);
        }
        // Past 2^53 nothing is left to reduce by: any value of the right range will do. NaN and
        // what came of infinity stay NaN, as the lanes of a CPU keep them.
        let ordered = self.code.op(Class::Pred, "testp.number.f64", [low.into()]);
        let clamped = f64_op(self, "max.f64", [low.into(), number(-0.8)]);
        let clamped = f64_op(self, "min.f64", [clamped.into(), number(0.8)]);
        let sources = [clamped.into(), low.into(), ordered.into()];
        let low = self.code.op(Class::B64, "selp.b64", sources);
        let rest = self.code.op(Class::B32, "cvt.rn.f32.f64", [low.into()]);
        let quarter = f64_op(self, "mul.rn.f64", [count.into(), number(0.25)]);
        let quarter = self.code.op(Class::B64, "cvt.rmi.f64.f64", [quarter.into()]);
        let fours = f64_op(self, "mul.rn.f64", [quarter.into(), number(4.0)]);
        let left = f64_op(self, "sub.rn.f64", [count.into(), fours.into()]);
        let turns = self.code.op(Class::B32, "cvt.rzi.s32.f64", [left.into()]);
        [rest, turns]
    }

    /// Sine where `turns` is even and cosine where it is odd, negated where bit 1 of it is set.
    fn sin_cos(&mut self, rest: Reg, turns: Reg) -> Reg {
        let square = self.mul(rest, rest);
        let cube = self.mul(square, rest);
        let series = self.polynomial(square, &SIN);
        let sine = self.fma(cube, series, rest);
        let cosine = self.fma(square, -0.5_f32, 1.0_f32);
        let fourth = self.mul(square, square);
        let series = self.polynomial(square, &COS);
        let cosine = self.fma(fourth, series, cosine);
        let odd = self.f32_op("and.b32", [turns.into(), 1.into()]);
        let odd = self.code.op(Class::Pred, "setp.ne.u32", [odd.into(), 0.into()]);
        let value = self.if_else(odd, cosine, sine);
        let sign = self.f32_op("and.b32", [turns.into(), 2.into()]);
        let sign = self.f32_op("shl.b32", [sign.into(), 30.into()]);
        self.f32_op("xor.b32", [value.into(), sign.into()])
    }

    pub(crate) fn sin(&mut self, x: Reg) -> Reg {
        let [rest, turns] = self.reduce_angle(x);
        let value = self.sin_cos(rest, turns);
        // Zero keeps its sign, which the reduction may lose.
        let zero = self.test("setp.eq.f32", x, 0.0);
        self.if_else(zero, x, value)
    }

    pub(crate) fn cos(&mut self, x: Reg) -> Reg {
        let [rest, turns] = self.reduce_angle(x);
        let turns = self.f32_op("add.s32", [turns.into(), 1.into()]);
        self.sin_cos(rest, turns)
    }
}
