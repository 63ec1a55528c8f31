//! Integer arithmetic and logic, as the PTX manual defines it for every width.

use super::bits;
use super::call::Call;
use super::lanes::{Decoded, compute, map1, map2, map3};
use crate::program::Compute;
use crate::types::{Ty, low_mask, sign_extend};

/// Decodes an instruction whose type is an integer or untyped.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    match call.name {
        "add" | "sub" => add(call),
        "mul" | "mad" => multiply(call),
        "mul24" | "mad24" => multiply24(call),
        "sad" => sad(call),
        "div" | "rem" => divide(call),
        "min" | "max" => extreme(call),
        "neg" | "abs" => {
            let ty = signed(call)?;
            let (bits, mask) = (ty.bits(), low_mask(ty.bits()));
            let f = match call.name {
                "neg" => map1(move |a| a.wrapping_neg() & mask),
                _ => map1(move |a| sign_extend(a, bits).wrapping_abs() as u64 & mask),
            };
            compute(call, ty, &[ty], f)
        }
        "dp4a" => dot4(call),
        _ => bits::decode(call),
    }
}

fn integer(call: &mut Call<'_, '_>) -> Result<Ty, crate::ParseError> {
    let ty = call.ty()?;
    let wide_enough = ty.bits() >= 16 && ty.bits() <= 64;
    if wide_enough && ty.is_integer() { Ok(ty) } else { call.unsupported(ty) }
}

fn signed(call: &mut Call<'_, '_>) -> Result<Ty, crate::ParseError> {
    let ty = integer(call)?;
    if ty.is_signed() { Ok(ty) } else { call.unsupported(ty) }
}

/// A lane's value as a number.
fn number(ty: Ty, value: u64) -> i128 {
    if ty.is_signed() { i128::from(sign_extend(value, ty.bits())) } else { i128::from(value) }
}

fn clamp_s32(value: i128) -> u64 {
    let value = value.clamp(i128::from(i32::MIN), i128::from(i32::MAX));
    value as u64 & low_mask(32)
}

fn add(call: &mut Call<'_, '_>) -> Decoded {
    let ty = call.ty()?;
    let subtract = call.name == "sub";
    if matches!(ty, Ty::U16x2 | Ty::S16x2) {
        let f = halves(move |a, b| if subtract { a.wrapping_sub(b) } else { a.wrapping_add(b) });
        return compute(call, ty, &[ty, ty], f);
    }
    if !ty.is_integer() || ty.bits() < 16 {
        return call.unsupported(ty);
    }
    let mask = low_mask(ty.bits());
    let f = match (call.has("sat"), subtract) {
        (true, _) if ty != Ty::Signed(32) => return call.unsupported(ty),
        (true, false) => map2(move |a, b| clamp_s32(number(ty, a) + number(ty, b))),
        (true, true) => map2(move |a, b| clamp_s32(number(ty, a) - number(ty, b))),
        (false, false) => map2(move |a, b| a.wrapping_add(b) & mask),
        (false, true) => map2(move |a, b| a.wrapping_sub(b) & mask),
    };
    compute(call, ty, &[ty, ty], f)
}

/// Applies a function to both 16-bit halves.
fn halves(f: impl Fn(u16, u16) -> u16 + Send + Sync + 'static) -> Compute {
    map2(move |a, b| {
        let low = f(a as u16, b as u16);
        let high = f((a >> 16) as u16, (b >> 16) as u16);
        u64::from(high) << 16 | u64::from(low)
    })
}

fn multiply(call: &mut Call<'_, '_>) -> Decoded {
    let ty = integer(call)?;
    let bits = ty.bits();
    let mask = low_mask(bits);
    let add = call.name == "mad";
    let half = ["lo", "hi", "wide"].into_iter().find(|half| call.has(half));
    let (dst, f) = match half {
        Some("lo") => (ty, map3(move |a, b, c| a.wrapping_mul(b).wrapping_add(c) & mask)),
        Some("hi") if call.has("sat") && add && ty == Ty::Signed(32) => {
            let f =
                move |a, b, c| clamp_s32(((number(ty, a) * number(ty, b)) >> 32) + number(ty, c));
            (ty, map3(f))
        }
        Some("hi") => {
            let f = move |a, b, c: u64| {
                let product = number(ty, a).wrapping_mul(number(ty, b)) >> bits;
                (product as u64).wrapping_add(c) & mask
            };
            // An unsigned 64-bit product does not fit in i128.
            let unsigned64 = |a: u64, b: u64, c: u64| {
                (((u128::from(a) * u128::from(b)) >> 64) as u64).wrapping_add(c)
            };
            (ty, if ty == Ty::Unsigned(64) { map3(unsigned64) } else { map3(f) })
        }
        Some(_) if bits <= 32 => {
            let dst = match ty.is_signed() {
                true => Ty::Signed(bits * 2),
                false => Ty::Unsigned(bits * 2),
            };
            let mask = low_mask(bits * 2);
            let f =
                move |a, b, c: u64| ((number(ty, a) * number(ty, b)) as u64).wrapping_add(c) & mask;
            (dst, map3(f))
        }
        _ => return call.error("`.lo`, `.hi` or `.wide` is missing, or not for this type"),
    };
    match add {
        true => compute(call, dst, &[ty, ty, dst], f),
        false => compute(call, dst, &[ty, ty], f),
    }
}

fn multiply24(call: &mut Call<'_, '_>) -> Decoded {
    let ty = integer(call)?;
    if ty.bits() != 32 {
        return call.unsupported(ty);
    }
    let high = call.has("hi");
    if !high && !call.has("lo") {
        return call.error("`.lo` or `.hi` is missing");
    }
    let part = move |value: u64| match ty.is_signed() {
        true => sign_extend(value, 24),
        false => (value & low_mask(24)) as i64,
    };
    let f = move |a, b, c: u64| {
        let product = part(a) * part(b);
        let half = if high { product >> 16 } else { product };
        (half as u64).wrapping_add(c) & low_mask(32)
    };
    match call.name {
        "mad24" => compute(call, ty, &[ty, ty, ty], map3(f)),
        _ => compute(call, ty, &[ty, ty], map3(f)),
    }
}

fn sad(call: &mut Call<'_, '_>) -> Decoded {
    let ty = integer(call)?;
    let mask = low_mask(ty.bits());
    let f = move |a, b, c: u64| {
        let difference = (number(ty, a) - number(ty, b)).unsigned_abs() as u64;
        difference.wrapping_add(c) & mask
    };
    compute(call, ty, &[ty, ty, ty], map3(f))
}

/// Division by zero gives all ones, as the sequences do that hardware has for it.
fn divide(call: &mut Call<'_, '_>) -> Decoded {
    let ty = integer(call)?;
    let mask = low_mask(ty.bits());
    let f = match call.name {
        "div" => map2(move |a, b| {
            let b = number(ty, b);
            if b == 0 { mask } else { (number(ty, a) / b) as u64 & mask }
        }),
        _ => map2(move |a, b| {
            let b = number(ty, b);
            if b == 0 { mask } else { (number(ty, a) % b) as u64 & mask }
        }),
    };
    compute(call, ty, &[ty, ty], f)
}

fn extreme(call: &mut Call<'_, '_>) -> Decoded {
    let ty = call.ty()?;
    let max = call.name == "max";
    if matches!(ty, Ty::U16x2 | Ty::S16x2) {
        let f = match (ty, max) {
            (Ty::U16x2, true) => halves(u16::max),
            (Ty::U16x2, false) => halves(u16::min),
            (_, true) => halves(|a, b| (a as i16).max(b as i16) as u16),
            (_, false) => halves(|a, b| (a as i16).min(b as i16) as u16),
        };
        return compute(call, ty, &[ty, ty], f);
    }
    if !ty.is_integer() || ty.bits() < 16 {
        return call.unsupported(ty);
    }
    let bits = ty.bits();
    let relu = call.has("relu");
    if relu && ty != Ty::Signed(32) {
        return call.unsupported(ty);
    }
    let f = match (ty.is_signed(), max) {
        (false, true) => map2(u64::max),
        (false, false) => map2(u64::min),
        (true, _) => map2(move |a, b| {
            let (left, right) = (sign_extend(a, bits), sign_extend(b, bits));
            let value = if max { left.max(right) } else { left.min(right) };
            let value = if relu { value.max(0) } else { value };
            value as u64 & low_mask(bits)
        }),
    };
    compute(call, ty, &[ty, ty], f)
}

fn dot4(call: &mut Call<'_, '_>) -> Decoded {
    let (a_ty, b_ty) = (call.ty()?, call.ty()?);
    for ty in [a_ty, b_ty] {
        if !ty.is_integer() || ty.bits() != 32 {
            return call.unsupported(ty);
        }
    }
    let byte = |ty: Ty, value: u64, index: u32| {
        let byte = (value >> (8 * index)) & 0xff;
        if ty.is_signed() { sign_extend(byte, 8) } else { byte as i64 }
    };
    let f = move |a, b, c: u64| {
        let products = (0..4).map(|i| byte(a_ty, a, i) * byte(b_ty, b, i));
        c.wrapping_add(products.sum::<i64>() as u64) & low_mask(32)
    };
    let signed = a_ty.is_signed() || b_ty.is_signed();
    let dst = if signed { Ty::Signed(32) } else { Ty::Unsigned(32) };
    compute(call, dst, &[a_ty, b_ty, dst], map3(f))
}
