//! `cvt`: between all number formats.

use super::call::{Call, Width};
use super::float::rounding;
use super::lanes::{Decoded, map1, map2};
use crate::ParseError;
use crate::number::{self, Format, Round};
use crate::program::{Class, Compute, Op};
use crate::types::{Ty, low_mask, sign_extend};

/// The modifiers of a conversion.
#[derive(Clone, Copy)]
struct Flags {
    round: Option<Round>,
    /// Rounds to an integer: `.rni` and the like.
    integral: bool,
    ftz: bool,
    saturate: bool,
    satfinite: bool,
    relu: bool,
}

/// Decodes `cvt`.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    let integral = call.pick(|name| match name {
        "rni" => Some(Round::Nearest),
        "rzi" => Some(Round::Zero),
        "rmi" => Some(Round::Down),
        "rpi" => Some(Round::Up),
        _ => None,
    });
    let away = call.has("rna").then_some(Round::Away);
    let flags = Flags {
        round: integral.or(away).or(rounding(call)),
        integral: integral.is_some(),
        ftz: call.has("ftz"),
        saturate: call.has("sat"),
        satfinite: call.has("satfinite"),
        relu: call.has("relu"),
    };
    let (to, from) = (call.ty()?, call.ty()?);
    if packed(to).is_some() || packed(from).is_some() {
        return packs(call, flags, (to, from));
    }
    call.count(2..=2)?;
    let src = call.wide_src(1, from)?;
    let (dst, dst_bits) = call.wide_dst(0, to, Width::AtLeast)?;
    call.finish()?;
    let f = scalar(call, flags, (to, from), dst_bits)?;
    Ok((Op::Compute { f, dst, src: [src; 3], count: 1 }, Class::Convert))
}

/// The format of a scalar float type.
fn float(ty: Ty) -> Option<Format> {
    match ty {
        Ty::F16 => Some(number::F16),
        Ty::Bf16 => Some(number::BF16),
        Ty::Tf32 => Some(number::TF32),
        Ty::F32 => Some(number::F32),
        Ty::F64 => Some(number::F64),
        _ => None,
    }
}

/// What the two halves of a packed type are.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Packed {
    Float(Format),
    /// Powers of two, `2^(code - 127)`.
    Scale,
}

fn packed(ty: Ty) -> Option<Packed> {
    Some(Packed::Float(match ty {
        Ty::F16x2 => number::F16,
        Ty::Bf16x2 => number::BF16,
        Ty::E4m3x2 => number::E4M3,
        Ty::E5m2x2 => number::E5M2,
        Ty::E2m1x2 => number::E2M1,
        Ty::E2m3x2 => number::E2M3,
        Ty::E3m2x2 => number::E3M2,
        Ty::Ue8m0x2 => return Some(Packed::Scale),
        _ => return None,
    }))
}

fn scalar(
    call: &Call<'_, '_>,
    flags: Flags,
    (to, from): (Ty, Ty),
    dst_bits: u32,
) -> Result<Compute, ParseError> {
    if flags.satfinite && to != Ty::Tf32 || flags.relu && !matches!(to, Ty::F16 | Ty::Bf16) {
        return call.error("`.satfinite` and `.relu` are not known here");
    }
    match (float(to), float(from)) {
        (None, None) => integers(call, flags, (to, from), dst_bits),
        (None, Some(format)) => to_integer(call, flags, (to, format), dst_bits),
        (Some(format), None) => from_integer(call, flags, (format, from)),
        (Some(wide), Some(narrow)) => floats(call, flags, (wide, narrow)),
    }
}

fn range(ty: Ty) -> (i128, i128) {
    let bits = ty.bits();
    match ty.is_signed() {
        true => (-(1 << (bits - 1)), (1 << (bits - 1)) - 1),
        false => (0, (1 << bits) - 1),
    }
}

fn integer(ty: Ty, value: u64) -> i128 {
    match ty.is_signed() {
        true => i128::from(sign_extend(value, ty.bits())),
        false => i128::from(value & low_mask(ty.bits())),
    }
}

/// The register's bits for an integer of a type: its sign fills a wider register.
fn widened(ty: Ty, value: i128, dst_bits: u32) -> u64 {
    let narrow = value as u64 & low_mask(ty.bits());
    match ty.is_signed() {
        true => sign_extend(narrow, ty.bits()) as u64 & low_mask(dst_bits),
        false => narrow,
    }
}

fn integers(
    call: &Call<'_, '_>,
    flags: Flags,
    (to, from): (Ty, Ty),
    dst_bits: u32,
) -> Result<Compute, ParseError> {
    for ty in [to, from] {
        if !ty.is_integer() {
            return call.unsupported(ty);
        }
    }
    if flags.round.is_some() || flags.ftz {
        return call.error("integers are not rounded");
    }
    let (low, high) = range(to);
    Ok(match flags.saturate {
        true => map1(move |a| widened(to, integer(from, a).clamp(low, high), dst_bits)),
        false => map1(move |a| {
            let bits = from.bits();
            let value =
                if from.is_signed() { sign_extend(a, bits) as u64 } else { a & low_mask(bits) };
            let narrow = value & low_mask(to.bits());
            match to.is_signed() {
                true => sign_extend(narrow, to.bits()) as u64 & low_mask(dst_bits),
                false => narrow,
            }
        }),
    })
}

/// Rounds to an integer; the result of `cvt.rni` and the like.
fn integral(value: f64, round: Round) -> f64 {
    match round {
        Round::Nearest => value.round_ties_even(),
        Round::Away => value.round(),
        Round::Zero => value.trunc(),
        Round::Down => value.floor(),
        Round::Up => value.ceil(),
    }
}

fn input(format: Format, ftz: bool, bits: u64) -> f64 {
    let value = format.decode(bits & low_mask(format.bits()));
    let flushed = ftz && format == number::F32 && bits & format.exponent_mask() == 0;
    if flushed { 0.0f64.copysign(value) } else { value }
}

fn to_integer(
    call: &Call<'_, '_>,
    flags: Flags,
    (to, format): (Ty, Format),
    dst_bits: u32,
) -> Result<Compute, ParseError> {
    if !to.is_integer() {
        return call.unsupported(to);
    }
    let (Some(round), true) = (flags.round, flags.integral) else {
        return call.error("an integer rounding is missing");
    };
    let (low, high) = range(to);
    Ok(map1(move |a| {
        // A cast keeps what it can, and makes zero of NaN.
        let value = integral(input(format, flags.ftz, a), round) as i128;
        widened(to, value.clamp(low, high), dst_bits)
    }))
}

fn from_integer(
    call: &Call<'_, '_>,
    flags: Flags,
    (format, from): (Format, Ty),
) -> Result<Compute, ParseError> {
    if !from.is_integer() {
        return call.unsupported(from);
    }
    let (Some(round), false, false) = (flags.round, flags.integral, flags.ftz) else {
        return call.error("a rounding is missing, or not for integers");
    };
    let saturate = flags.saturate;
    if format == number::F32 && round == Round::Nearest && !saturate {
        return Ok(map1(move |a| u64::from((integer(from, a) as f32).to_bits())));
    }
    Ok(map1(move |a| {
        let value = integer(from, a);
        let value = if saturate { value.clamp(0, 1) } else { value };
        format.encode_parts(value < 0, value.unsigned_abs(), 0, (round, false))
    }))
}

fn floats(
    call: &Call<'_, '_>,
    flags: Flags,
    (to, from): (Format, Format),
) -> Result<Compute, ParseError> {
    let narrows = to.mantissa < from.mantissa || to.exponent < from.exponent;
    if flags.round.is_none() && narrows {
        return call.error("a rounding is missing");
    }
    let round = flags.round.unwrap_or(Round::Nearest);
    let Flags { integral: to_integral, ftz, saturate, satfinite, relu, .. } = flags;
    let tf32 = to == number::TF32;
    Ok(map1(move |a| {
        let mut value = input(from, ftz, a);
        if to_integral {
            value = integral(value, round);
        }
        if saturate {
            value = if value.is_nan() { 0.0 } else { value.clamp(0.0, 1.0) + 0.0 };
        }
        if relu && value <= 0.0 {
            value = 0.0;
        }
        let bits = to.encode(value, round, satfinite);
        // A tf32 lies in the upper bits of a 32-bit register.
        let bits = if tf32 { bits << 13 } else { bits };
        let flushed = ftz && to == number::F32 && bits & to.exponent_mask() == 0;
        if flushed { bits & (1 << 31) } else { bits }
    }))
}

/// The code of one half.
fn encode_half(to: Packed, flags: Flags, value: f64) -> u64 {
    let round = flags.round.unwrap_or(Round::Nearest);
    match to {
        Packed::Float(format) => {
            let value = if flags.relu && value <= 0.0 { 0.0 } else { value };
            format.encode(value, round, flags.satfinite)
        }
        Packed::Scale => encode_scale(value, round, flags.satfinite),
    }
}

/// The power of two below a magnitude, or above it when rounding up, as ue8m0.
fn encode_scale(value: f64, round: Round, saturate: bool) -> u64 {
    let value = value.abs();
    if value.is_nan() || (value.is_infinite() && !saturate) {
        return 0xff;
    }
    if value < number::power(-127) {
        return 0;
    }
    if value.is_infinite() {
        return 0xfe;
    }
    let (significand, exponent) = number::split(value);
    let top = 63 - significand.leading_zeros() as i32;
    let exact = significand.is_power_of_two();
    let code = exponent + top + 127 + i32::from(round == Round::Up && !exact);
    match code {
        255.. => {
            if saturate {
                0xfe
            } else {
                0xff
            }
        }
        code => code as u64,
    }
}

fn decode_half(from: Packed, code: u64) -> f64 {
    match from {
        Packed::Float(format) => format.decode(code),
        Packed::Scale if code == 0xff => f64::NAN,
        Packed::Scale => number::power(code as i32 - 127),
    }
}

/// Bits between the halves of a packed type: six-bit formats stand in bytes.
fn half_bits(packed: Packed) -> u32 {
    match packed {
        Packed::Float(format) if format.bits() == 6 => 8,
        Packed::Float(format) => format.bits(),
        Packed::Scale => 8,
    }
}

fn packs(call: &mut Call<'_, '_>, flags: Flags, (to, from): (Ty, Ty)) -> Decoded {
    if flags.round.is_none() || flags.integral || flags.ftz || flags.saturate {
        return call.error("a rounding is missing, or a modifier is not for packed types");
    }
    let Some(target) = packed(to) else {
        return call.unsupported(to);
    };
    let bits = half_bits(target);
    let small = !matches!(to, Ty::F16x2 | Ty::Bf16x2);
    if small && target != Packed::Scale && !flags.satfinite {
        return call.error("`.satfinite` is missing");
    }
    if from == Ty::F32 {
        call.count(3..=3)?;
        // The first source becomes the upper half.
        let src = [call.src(1, from)?, call.src(2, from)?];
        let dst = call.wide_dst(0, to, Width::AtLeast)?.0;
        call.finish()?;
        let f = map2(move |a, b| {
            let half = |x: u64| encode_half(target, flags, f64::from(f32::from_bits(x as u32)));
            half(a) << bits | half(b)
        });
        let src = [src[0], src[1], src[0]];
        return Ok((Op::Compute { f, dst, src, count: 2 }, Class::Convert));
    }
    let Some(origin) = packed(from) else {
        return call.unsupported(from);
    };
    call.count(2..=2)?;
    let src = call.wide_src(1, from)?;
    let dst = call.wide_dst(0, to, Width::AtLeast)?.0;
    call.finish()?;
    let from_bits = half_bits(origin);
    let one = move |code: u64| encode_half(target, flags, decode_half(origin, code));
    if from_bits <= 8 {
        // Few codes: their results are found once.
        let all: Vec<u64> = (0..1 << from_bits).map(one).collect();
        let at = move |code: u64| all[(code & low_mask(from_bits)) as usize];
        let f = map1(move |a| at(a >> from_bits) << bits | at(a));
        return Ok((Op::Compute { f, dst, src: [src; 3], count: 1 }, Class::Convert));
    }
    let f = move |a: u64| {
        one(a >> from_bits & low_mask(from_bits)) << bits | one(a & low_mask(from_bits))
    };
    Ok((Op::Compute { f: map1(f), dst, src: [src; 3], count: 1 }, Class::Convert))
}
