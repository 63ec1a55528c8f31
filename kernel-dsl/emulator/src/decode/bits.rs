//! Logic, shifts, fields and permutations of bits.

use super::call::Call;
use super::lanes::{Decoded, compute, map1, map2, map3};
use crate::program::Compute;
use crate::types::{Ty, low_mask, sign_extend};

const B32: Ty = Ty::Bits(32);
const U32: Ty = Ty::Unsigned(32);

/// Decodes an instruction on bits.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    match call.name {
        "and" | "or" | "xor" | "not" | "cnot" => logic(call),
        "shl" | "shr" => shift(call),
        "shf" => funnel(call),
        "bfe" => extract(call),
        "bfi" => insert(call),
        "bfind" => find(call),
        "popc" | "clz" => count(call),
        "brev" => {
            let ty = sized(call, &[32, 64])?;
            let bits = ty.bits();
            compute(call, ty, &[ty], map1(move |a| a.reverse_bits() >> (64 - bits)))
        }
        "bmsk" => mask(call),
        "szext" => size_extend(call),
        "prmt" => permute(call),
        "lop3" => lop3(call),
        _ => call.error("this instruction is not known"),
    }
}

fn sized(call: &mut Call<'_, '_>, widths: &[u32]) -> Result<Ty, crate::ParseError> {
    let ty = call.ty()?;
    let bits = matches!(ty, Ty::Bits(_) | Ty::Unsigned(_) | Ty::Signed(_));
    if bits && widths.contains(&ty.bits()) { Ok(ty) } else { call.unsupported(ty) }
}

fn logic(call: &mut Call<'_, '_>) -> Decoded {
    let ty = sized(call, &[16, 32, 64])?;
    let mask = low_mask(ty.bits());
    match call.name {
        "and" => compute(call, ty, &[ty, ty], map2(|a, b| a & b)),
        "or" => compute(call, ty, &[ty, ty], map2(|a, b| a | b)),
        "xor" => compute(call, ty, &[ty, ty], map2(|a, b| a ^ b)),
        "not" => compute(call, ty, &[ty], map1(move |a| !a & mask)),
        _ => compute(call, ty, &[ty], map1(|a| u64::from(a == 0))),
    }
}

fn shift(call: &mut Call<'_, '_>) -> Decoded {
    let ty = sized(call, &[16, 32, 64])?;
    let bits = ty.bits();
    let mask = low_mask(bits);
    // The shift is 32 bits wide whatever the type, and what is too far is clamped.
    let f = match (call.name, ty.is_signed()) {
        ("shl", _) => map2(move |a, b| if b >= u64::from(bits) { 0 } else { a << b & mask }),
        (_, false) => map2(move |a, b| if b >= u64::from(bits) { 0 } else { a >> b }),
        (_, true) => map2(move |a, b| {
            let by = b.min(u64::from(bits) - 1);
            (sign_extend(a, bits) >> by) as u64 & mask
        }),
    };
    compute(call, ty, &[ty, U32], f)
}

fn funnel(call: &mut Call<'_, '_>) -> Decoded {
    let left = call.has("l");
    if !left && !call.has("r") {
        return call.error("`.l` or `.r` is missing");
    }
    let wrap = call.has("wrap");
    if !wrap && !call.has("clamp") {
        return call.error("`.wrap` or `.clamp` is missing");
    }
    sized(call, &[32])?;
    let f = move |a: u64, b: u64, c: u64| {
        let by = if wrap { c & 31 } else { c.min(32) };
        let both = b << 32 | a;
        // By 32 the left form gives `a`, the right form `b`.
        let value = match left {
            true => ((u128::from(both) << by) >> 32) as u64,
            false => both >> by,
        };
        value & low_mask(32)
    };
    compute(call, B32, &[B32, B32, U32], map3(f))
}

fn extract(call: &mut Call<'_, '_>) -> Decoded {
    let ty = sized(call, &[32, 64])?;
    let bits = ty.bits();
    let f = move |a: u64, b: u64, c: u64| {
        let (position, length) = ((b & 0xff) as u32, (c & 0xff) as u32);
        if length == 0 {
            return 0;
        }
        let msb = bits - 1;
        let value = if position > msb { 0 } else { a >> position };
        let sign = match ty.is_signed() {
            true => (a >> (position + length - 1).min(msb)) & 1,
            false => 0,
        };
        let kept = low_mask(length.min((bits).saturating_sub(position)));
        let upper = if sign == 1 { !kept } else { 0 };
        (value & kept | upper) & low_mask(bits)
    };
    compute(call, ty, &[ty, U32, U32], map3(f))
}

fn insert(call: &mut Call<'_, '_>) -> Decoded {
    let ty = sized(call, &[32, 64])?;
    call.count(5..=5)?;
    // Position and length are packed into one source by an instruction of their own.
    let (position, length) = (call.src(3, U32)?, call.src(4, U32)?);
    let packed = call.body.register();
    let join = map2(|p, l| (p & 0xff) << 8 | l & 0xff);
    let zero = call.constant(0);
    let (line, src) = (call.line, [position, length, zero]);
    let op = crate::program::Op::Compute { f: join, dst: packed, src, count: 2 };
    let guard = call.guard;
    call.body.push(op, guard, crate::program::Class::Integer, line);
    let bits = ty.bits();
    let f: Compute = map3(move |a, b, packed| {
        let (position, length) = ((packed >> 8) as u32, (packed & 0xff) as u32);
        if position >= bits {
            return b;
        }
        let field = (low_mask(length) << position) & low_mask(bits);
        (b & !field) | (a << position & field)
    });
    let (a, b, dst) = (call.src(1, ty)?, call.src(2, ty)?, call.dst(0, ty)?);
    call.finish()?;
    let src = [a, b, crate::program::Src::Reg(packed)];
    let op = crate::program::Op::Compute { f, dst, src, count: 3 };
    Ok((op, crate::program::Class::Integer))
}

fn find(call: &mut Call<'_, '_>) -> Decoded {
    let ty = sized(call, &[32, 64])?;
    let amount = call.has("shiftamt");
    let bits = ty.bits();
    let f = move |a: u64| {
        let negative = ty.is_signed() && sign_extend(a, bits) < 0;
        let a = if negative { !a & low_mask(bits) } else { a };
        match a {
            0 => 0xffff_ffff,
            a if amount => u64::from(a.leading_zeros() - (64 - bits)),
            a => u64::from(63 - a.leading_zeros()),
        }
    };
    compute(call, U32, &[ty], map1(f))
}

fn count(call: &mut Call<'_, '_>) -> Decoded {
    let ty = sized(call, &[32, 64])?;
    let bits = ty.bits();
    let f = match call.name {
        "popc" => map1(|a| u64::from(a.count_ones())),
        _ => map1(move |a| u64::from(a.leading_zeros() - (64 - bits))),
    };
    compute(call, U32, &[ty], f)
}

fn mask(call: &mut Call<'_, '_>) -> Decoded {
    let wrap = call.has("wrap");
    if !wrap && !call.has("clamp") {
        return call.error("`.wrap` or `.clamp` is missing");
    }
    sized(call, &[32])?;
    let f = move |a: u64, b: u64| {
        let (position, length) = if wrap { (a & 31, b & 31) } else { (a.min(32), b.min(32)) };
        low_mask(length as u32) << position & low_mask(32)
    };
    compute(call, B32, &[B32, B32], map2(f))
}

fn size_extend(call: &mut Call<'_, '_>) -> Decoded {
    let wrap = call.has("wrap");
    if !wrap && !call.has("clamp") {
        return call.error("`.wrap` or `.clamp` is missing");
    }
    let ty = sized(call, &[32])?;
    let f = move |a: u64, b: u64| {
        let length = if wrap { b & 31 } else { b.min(32) } as u32;
        match (length, ty.is_signed()) {
            (0, _) => 0,
            (length, true) => sign_extend(a, length) as u64 & low_mask(32),
            (length, false) => a & low_mask(length),
        }
    };
    compute(call, ty, &[ty, U32], map2(f))
}

fn permute(call: &mut Call<'_, '_>) -> Decoded {
    sized(call, &[32])?;
    let modes = ["f4e", "b4e", "rc8", "ecl", "ecr", "rc16"];
    let mode = modes.into_iter().find(|mode| call.has(mode));
    let f = move |a: u64, b: u64, c: u64| {
        let bytes = b << 32 | a;
        let byte = |selector: u64| {
            let byte = (bytes >> (8 * (selector & 7))) & 0xff;
            match selector & 8 {
                0 => byte,
                _ => (byte >> 7) * 0xff,
            }
        };
        let selector = |index: u64| match mode {
            None => (c >> (4 * index)) & 0xf,
            Some(mode) => selector_of(mode, c & 3, index),
        };
        (0..4).map(|index| byte(selector(index)) << (8 * index)).sum()
    };
    compute(call, B32, &[B32, B32, B32], map3(f))
}

/// The byte that `prmt` with a mode takes for byte `index`.
fn selector_of(mode: &str, control: u64, index: u64) -> u64 {
    match mode {
        "f4e" => control + index,
        "b4e" => (control + 8 - index) & 7,
        "rc8" => control,
        "ecl" => control.max(index),
        "ecr" => control.min(index),
        _ => (control & 1) * 2 + (index & 1),
    }
}

fn lop3(call: &mut Call<'_, '_>) -> Decoded {
    sized(call, &[32])?;
    call.count(5..=5)?;
    let crate::syntax::Arg::Int(table @ 0..=255) = call.args[4] else {
        return call.error("the table must be a number from 0 to 255");
    };
    call.args.truncate(4);
    let f = move |a: u64, b: u64, c: u64| {
        let mut value = 0;
        for row in 0..8u64 {
            if table >> row & 1 == 1 {
                let pick = |x: u64, bit: u64| if row & bit != 0 { x } else { !x };
                value |= pick(a, 4) & pick(b, 2) & pick(c, 1);
            }
        }
        value & low_mask(32)
    };
    compute(call, B32, &[B32, B32, B32], map3(f))
}
