//! Arithmetic on f16 and bf16, single or in pairs.

use super::call::Call;
use super::float::{pick, transcendental};
use super::lanes::{Decoded, compute, map1, map2, map3};
use crate::number::{BF16, F16, Format, Round, add_odd};
use crate::types::Ty;

/// How a half-precision instruction treats its numbers.
#[derive(Clone, Copy)]
struct Mode {
    format: Format,
    pair: bool,
    ftz: bool,
    saturate: bool,
    relu: bool,
}

impl Mode {
    fn input(self, bits: u64) -> f64 {
        let value = self.format.decode(bits & 0xffff);
        let subnormal = bits & self.format.exponent_mask() == 0;
        if self.ftz && subnormal { 0.0f64.copysign(value) } else { value }
    }

    fn output(self, value: f64) -> u64 {
        let value = match (self.saturate, self.relu) {
            (true, _) if value.is_nan() => 0.0,
            (true, _) => value.clamp(0.0, 1.0) + 0.0,
            (_, true) if value <= 0.0 => 0.0,
            _ => value,
        };
        let bits = self.format.encode(value, Round::Nearest, false);
        if self.ftz && bits & self.format.exponent_mask() == 0 { bits & 0x8000 } else { bits }
    }

    /// Applies a function to the one value or to both of a pair.
    fn each(self, f: impl Fn([u64; 3]) -> u64, args: [u64; 3]) -> u64 {
        let low = f(args.map(|x| x & 0xffff));
        match self.pair {
            true => f(args.map(|x| (x >> 16) & 0xffff)) << 16 | low,
            false => low,
        }
    }
}

/// The format of a half-precision type, and whether it is a pair.
pub(crate) fn format(ty: Ty) -> Option<(Format, bool)> {
    match ty {
        Ty::F16 => Some((F16, false)),
        Ty::F16x2 => Some((F16, true)),
        Ty::Bf16 => Some((BF16, false)),
        Ty::Bf16x2 => Some((BF16, true)),
        _ => None,
    }
}

/// Decodes an instruction whose type is f16, bf16 or a pair of them.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    call.has("rn");
    let (ftz, saturate, relu) = (call.has("ftz"), call.has("sat"), call.has("relu"));
    let approximate = call.has("approx");
    let (nan, xorsign) = (call.has("NaN"), call.has("xorsign"));
    if xorsign && !call.has("abs") {
        return call.error("`.xorsign` needs `.abs`");
    }
    let ty = call.ty()?;
    let Some((format, pair)) = format(ty) else {
        return call.unsupported(ty);
    };
    let mode = Mode { format, pair, ftz, saturate, relu };
    match (call.name, approximate) {
        ("ex2" | "tanh", true) => {
            let function = transcendental(call.name);
            let f = move |[a, ..]: [u64; 3]| mode.output(function(mode.input(a)));
            compute(call, ty, &[ty], map1(move |a| mode.each(f, [a, 0, 0])))
        }
        (_, true) => call.error("`.approx` is not known here"),
        ("min" | "max", _) => extreme(call, ty, mode, (nan, xorsign)),
        (_, _) if nan || xorsign => call.error("`.NaN` and `.xorsign` are not known here"),
        ("add" | "sub" | "mul" | "fma", _) => arithmetic(call, ty, mode),
        ("neg" | "abs", _) => {
            let negate = call.name == "neg";
            let f = move |[a, ..]: [u64; 3]| {
                let a =
                    if mode.ftz && a & mode.format.exponent_mask() == 0 { a & 0x8000 } else { a };
                if negate { a ^ 0x8000 } else { a & 0x7fff }
            };
            compute(call, ty, &[ty], map1(move |a| mode.each(f, [a, 0, 0])))
        }
        _ => call.error("this instruction is not known"),
    }
}

fn arithmetic(call: &mut Call<'_, '_>, ty: Ty, mode: Mode) -> Decoded {
    let input = move |x| mode.input(x);
    let add = move |[a, b, _]: [u64; 3]| mode.output(add_odd(input(a), input(b)));
    let sub = move |[a, b, _]: [u64; 3]| mode.output(add_odd(input(a), -input(b)));
    // Products of two such numbers are exact in f64.
    let mul = move |[a, b, _]: [u64; 3]| mode.output(input(a) * input(b));
    let fma = move |[a, b, c]: [u64; 3]| mode.output(add_odd(input(a) * input(b), input(c)));
    match call.name {
        "add" => compute(call, ty, &[ty; 2], map2(move |a, b| mode.each(add, [a, b, 0]))),
        "sub" => compute(call, ty, &[ty; 2], map2(move |a, b| mode.each(sub, [a, b, 0]))),
        "mul" => compute(call, ty, &[ty; 2], map2(move |a, b| mode.each(mul, [a, b, 0]))),
        _ => compute(call, ty, &[ty; 3], map3(move |a, b, c| mode.each(fma, [a, b, c]))),
    }
}

fn extreme(call: &mut Call<'_, '_>, ty: Ty, mode: Mode, (nan, xorsign): (bool, bool)) -> Decoded {
    let max = call.name == "max";
    let f = move |[a, b, _]: [u64; 3]| {
        let (x, y) = (mode.input(a), mode.input(b));
        if !xorsign {
            return mode.output(pick(max, nan, x, y));
        }
        let magnitude = mode.output(pick(max, nan, x.abs(), y.abs()));
        if magnitude == mode.format.nan() { magnitude } else { magnitude | (a ^ b) & 0x8000 }
    };
    compute(call, ty, &[ty; 2], map2(move |a, b| mode.each(f, [a, b, 0])))
}
