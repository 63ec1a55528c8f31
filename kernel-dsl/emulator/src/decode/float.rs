//! Arithmetic on f32, f64 and pairs of f32.
//!
//! What the manual defines exactly is exact. The `.approx` functions are computed in f64 and
//! rounded once, which is inside the error that the manual grants, but not hardware's bits.

use super::call::Call;
use super::lanes::{Decoded, compute, map1, map2, map3};
use crate::ParseError;
use crate::number::{self, F32, Round, add_odd, bits_of, f32_of, flush};
use crate::program::Compute;
use crate::types::Ty;

/// How an f32 instruction treats its numbers.
#[derive(Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) round: Round,
    pub(crate) ftz: bool,
    pub(crate) saturate: bool,
}

impl Mode {
    pub(crate) fn input(self, bits: u64) -> f32 {
        let value = f32_of(bits);
        if self.ftz { flush(value) } else { value }
    }

    fn output(self, value: f32) -> u64 {
        let value = if self.ftz { flush(value) } else { value };
        match self.saturate {
            // NaN saturates to zero.
            true if value.is_nan() => 0,
            true => bits_of(value.clamp(0.0, 1.0) + 0.0),
            false => bits_of(value),
        }
    }

    /// A sum, still to be rounded. What cancels to zero is negative when rounding down.
    fn sum(self, a: f64, b: f64) -> f64 {
        let sum = add_odd(a, b);
        let positive = a.is_sign_positive() && b.is_sign_positive();
        if sum == 0.0 && self.round == Round::Down && !positive { -0.0 } else { sum }
    }

    /// Rounds an f64 that carries what a second rounding needs.
    fn round(self, value: f64) -> u64 {
        self.output(f32_of(F32.encode(value, self.round, false)))
    }
}

pub(crate) fn rounding(call: &mut Call<'_, '_>) -> Option<Round> {
    call.pick(|name| match name {
        "rn" => Some(Round::Nearest),
        "rz" => Some(Round::Zero),
        "rm" => Some(Round::Down),
        "rp" => Some(Round::Up),
        _ => None,
    })
}

fn mode(call: &mut Call<'_, '_>) -> Mode {
    let round = rounding(call).unwrap_or(Round::Nearest);
    Mode { round, ftz: call.has("ftz"), saturate: call.has("sat") }
}

/// Decodes an instruction whose type is f32, f64 or f32x2.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    match call.name {
        "min" | "max" => extreme(call),
        "abs" | "neg" => sign(call),
        "copysign" => {
            let ty = call.ty()?;
            let bit = 1u64 << (ty.bits() - 1);
            compute(call, ty, &[ty, ty], map2(move |a, b| b & !bit | a & bit))
        }
        "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh" => approximate(call),
        "div" | "sqrt" | "rcp" => quotient(call),
        "add" | "sub" | "mul" | "fma" | "mad" => {
            let mode = mode(call);
            match call.ty()? {
                Ty::F32 => arithmetic(call, mode),
                Ty::F32x2 => arithmetic_x2(call, mode),
                Ty::F64 => arithmetic64(call, mode),
                ty => call.unsupported(ty),
            }
        }
        _ => call.error("this instruction is not known"),
    }
}

pub(crate) fn add32(mode: Mode, a: u64, b: u64) -> u64 {
    let (a, b) = (mode.input(a), mode.input(b));
    match mode.round {
        Round::Nearest => mode.output(a + b),
        _ => mode.round(mode.sum(f64::from(a), f64::from(b))),
    }
}

fn mul32(mode: Mode, a: u64, b: u64) -> u64 {
    let (a, b) = (mode.input(a), mode.input(b));
    match mode.round {
        Round::Nearest => mode.output(a * b),
        _ => mode.round(f64::from(a) * f64::from(b)),
    }
}

fn fma32(mode: Mode, a: u64, b: u64, c: u64) -> u64 {
    let (a, b, c) = (mode.input(a), mode.input(b), mode.input(c));
    match mode.round {
        Round::Nearest => mode.output(a.mul_add(b, c)),
        _ => mode.round(mode.sum(f64::from(a) * f64::from(b), f64::from(c))),
    }
}

const NEGATIVE: u64 = 1 << 31;

fn arithmetic(call: &mut Call<'_, '_>, mode: Mode) -> Decoded {
    let two = [Ty::F32; 2];
    match call.name {
        "add" => compute(call, Ty::F32, &two, map2(move |a, b| add32(mode, a, b))),
        "sub" => compute(call, Ty::F32, &two, map2(move |a, b| add32(mode, a, b ^ NEGATIVE))),
        "mul" => compute(call, Ty::F32, &two, map2(move |a, b| mul32(mode, a, b))),
        _ => compute(call, Ty::F32, &[Ty::F32; 3], map3(move |a, b, c| fma32(mode, a, b, c))),
    }
}

/// Applies a function to both f32 of a pair.
fn pairs(f: impl Fn(u64, u64, u64) -> u64 + Send + Sync + 'static) -> Compute {
    let low = |x: u64| x & 0xffff_ffff;
    map3(move |a, b, c| f(a >> 32, b >> 32, c >> 32) << 32 | f(low(a), low(b), low(c)))
}

fn arithmetic_x2(call: &mut Call<'_, '_>, mode: Mode) -> Decoded {
    let (ty, two) = (Ty::F32x2, [Ty::F32x2; 2]);
    match call.name {
        "add" => compute(call, ty, &two, pairs(move |a, b, _| add32(mode, a, b))),
        "sub" => compute(call, ty, &two, pairs(move |a, b, _| add32(mode, a, b ^ NEGATIVE))),
        "mul" => compute(call, ty, &two, pairs(move |a, b, _| mul32(mode, a, b))),
        _ => compute(call, ty, &[ty; 3], pairs(move |a, b, c| fma32(mode, a, b, c))),
    }
}

fn arithmetic64(call: &mut Call<'_, '_>, mode: Mode) -> Decoded {
    if mode.round != Round::Nearest || mode.ftz || mode.saturate {
        return call.error("f64 knows `.rn` alone");
    }
    let v = f64::from_bits;
    let two = [Ty::F64; 2];
    match call.name {
        "add" => compute(call, Ty::F64, &two, map2(move |a, b| (v(a) + v(b)).to_bits())),
        "sub" => compute(call, Ty::F64, &two, map2(move |a, b| (v(a) - v(b)).to_bits())),
        "mul" => compute(call, Ty::F64, &two, map2(move |a, b| (v(a) * v(b)).to_bits())),
        _ => {
            let f = map3(move |a, b, c| v(a).mul_add(v(b), v(c)).to_bits());
            compute(call, Ty::F64, &[Ty::F64; 3], f)
        }
    }
}

/// A quotient or root in f64, rounded to odd by the sign of what remains.
fn odd(value: f64, remainder: f64) -> f64 {
    if remainder == 0.0 || !value.is_finite() || value.to_bits() & 1 == 1 {
        return value;
    }
    let outwards = (remainder > 0.0) == (value > 0.0);
    f64::from_bits(if outwards { value.to_bits() + 1 } else { value.to_bits() - 1 })
}

fn divide_odd(a: f64, b: f64) -> f64 {
    let value = a / b;
    if !value.is_finite() || value == 0.0 || b.is_infinite() {
        return value;
    }
    let remainder = value.mul_add(-b, a);
    odd(value, if b > 0.0 { remainder } else { -remainder })
}

fn root_odd(a: f64) -> f64 {
    let value = a.sqrt();
    if value.is_finite() { odd(value, value.mul_add(-value, a)) } else { value }
}

/// `rcp.approx.ftz.f64`: reads and writes the upper half of a number, subnormal ones as zeros.
fn gross_reciprocal(a: u64) -> u64 {
    const UPPER: u64 = !0xffff_ffff;
    let flush = |bits: u64| if f64::from_bits(bits).is_subnormal() { bits & 1 << 63 } else { bits };
    flush((1.0 / f64::from_bits(flush(a & UPPER))).to_bits() & UPPER)
}

fn quotient(call: &mut Call<'_, '_>) -> Decoded {
    let approximate = call.has("approx") || call.has("full");
    let rounded = rounding(call);
    if !approximate && rounded.is_none() {
        return call.error("a rounding or `.approx` is missing");
    }
    let round = rounded.unwrap_or(Round::Nearest);
    let mode = Mode { round, ftz: call.has("ftz"), saturate: false };
    let v = f64::from_bits;
    let input = move |x| f64::from(mode.input(x));
    match (call.ty()?, call.name) {
        (Ty::F32, "div") => {
            let f = map2(move |a, b| mode.round(divide_odd(input(a), input(b))));
            compute(call, Ty::F32, &[Ty::F32; 2], f)
        }
        (Ty::F32, "rcp") => {
            let f = map1(move |a| mode.round(divide_odd(1.0, input(a))));
            compute(call, Ty::F32, &[Ty::F32], f)
        }
        (Ty::F32, _) => {
            let f = map1(move |a| mode.round(root_odd(input(a))));
            compute(call, Ty::F32, &[Ty::F32], f)
        }
        (Ty::F64, "rcp") if approximate => {
            compute(call, Ty::F64, &[Ty::F64], map1(gross_reciprocal))
        }
        (Ty::F64, _) if approximate => call.unsupported(Ty::F64),
        (Ty::F64, _) if round != Round::Nearest => call.error("f64 knows `.rn` alone"),
        (Ty::F64, "div") => {
            compute(call, Ty::F64, &[Ty::F64; 2], map2(move |a, b| (v(a) / v(b)).to_bits()))
        }
        (Ty::F64, "rcp") => {
            compute(call, Ty::F64, &[Ty::F64], map1(move |a| (1.0 / v(a)).to_bits()))
        }
        (Ty::F64, _) => compute(call, Ty::F64, &[Ty::F64], map1(move |a| v(a).sqrt().to_bits())),
        (ty, _) => call.unsupported(ty),
    }
}

/// The function that an `.approx` instruction approximates.
pub(crate) fn transcendental(name: &str) -> fn(f64) -> f64 {
    match name {
        "rsqrt" => |x| 1.0 / x.sqrt(),
        "sin" => f64::sin,
        "cos" => f64::cos,
        "lg2" => f64::log2,
        "ex2" => f64::exp2,
        _ => f64::tanh,
    }
}

fn approximate(call: &mut Call<'_, '_>) -> Decoded {
    if !call.has("approx") {
        return call.error("`.approx` is missing");
    }
    let mode = Mode { round: Round::Nearest, ftz: call.has("ftz"), saturate: false };
    let ty = call.ty()?;
    if ty != Ty::F32 {
        return call.unsupported(ty);
    }
    let function = transcendental(call.name);
    compute(call, ty, &[ty], map1(move |a| mode.round(function(f64::from(mode.input(a))))))
}

fn sign(call: &mut Call<'_, '_>) -> Decoded {
    let ftz = call.has("ftz");
    let ty = call.ty()?;
    if !matches!(ty, Ty::F32 | Ty::F64) || (ftz && ty == Ty::F64) {
        return call.unsupported(ty);
    }
    let bit = 1u64 << (ty.bits() - 1);
    let negate = call.name == "neg";
    let f = move |a: u64| {
        let a = if ftz { u64::from(flush(f32_of(a)).to_bits()) } else { a };
        if negate { a ^ bit } else { a & !bit }
    };
    compute(call, ty, &[ty], map1(f))
}

/// Minimum or maximum with the manual's rules for NaN and signed zeros.
pub(crate) fn pick(max: bool, nan: bool, a: f64, b: f64) -> f64 {
    match (a.is_nan(), b.is_nan()) {
        (false, false) => {
            let a_wins = match a == b {
                true => a.is_sign_negative() != max,
                false => (a > b) == max,
            };
            if a_wins { a } else { b }
        }
        _ if nan => f64::NAN,
        (true, _) => b,
        (_, true) => a,
    }
}

fn extreme(call: &mut Call<'_, '_>) -> Decoded {
    let mode = Mode { round: Round::Nearest, ftz: call.has("ftz"), saturate: false };
    let (nan, xorsign) = (call.has("NaN"), call.has("xorsign"));
    if xorsign && !call.has("abs") {
        return call.error("`.xorsign` needs `.abs`");
    }
    let max = call.name == "max";
    let ty = call.ty()?;
    if ty == Ty::F64 && !(nan || xorsign || mode.ftz) {
        let f = move |a, b| {
            let value = pick(max, false, f64::from_bits(a), f64::from_bits(b));
            if value.is_nan() { number::F64.nan() } else { value.to_bits() }
        };
        return compute(call, ty, &[ty, ty], map2(f));
    }
    if ty != Ty::F32 {
        return call.unsupported(ty);
    }
    let f = move |a: u64, b: u64| {
        let (x, y) = (f64::from(mode.input(a)), f64::from(mode.input(b)));
        if !xorsign {
            return mode.round(pick(max, nan, x, y));
        }
        let magnitude = mode.round(pick(max, nan, x.abs(), y.abs()));
        if magnitude == number::F32.nan() { magnitude } else { magnitude | (a ^ b) & NEGATIVE }
    };
    if call.args.len() == 4 && !xorsign {
        return compute(call, ty, &[ty; 3], map3(move |a, b, c| f(f(a, b), c)));
    }
    compute(call, ty, &[ty, ty], map2(f))
}

/// `testp`: what kind of number a value is.
pub(crate) fn kind_test(call: &mut Call<'_, '_>) -> Result<crate::program::Test, ParseError> {
    let kinds = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
    let Some(kind) = kinds.into_iter().find(|kind| call.has(kind)) else {
        return call.error("the kind of number is missing");
    };
    let ty = call.ty()?;
    if !matches!(ty, Ty::F32 | Ty::F64) {
        return call.unsupported(ty);
    }
    let test = move |bits: u64| {
        let (class, nan) = match ty {
            Ty::F32 => (f32_of(bits).classify(), f32_of(bits).is_nan()),
            _ => (f64::from_bits(bits).classify(), f64::from_bits(bits).is_nan()),
        };
        use std::num::FpCategory as C;
        match kind {
            "finite" => !nan && class != C::Infinite,
            "infinite" => class == C::Infinite,
            "number" => !nan,
            "notanumber" => nan,
            "normal" => class == C::Normal,
            _ => class == C::Subnormal,
        }
    };
    Ok(super::compare::mask1(test))
}
