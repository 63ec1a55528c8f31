//! `mov`: registers, addresses, special registers, packing and unpacking.

use super::call::{Call, Width};
use super::lanes::{Decoded, compute, map1};
use crate::program::{Class, Op};
use crate::syntax::Arg;
use crate::types::Ty;

/// Decodes `mov` of anything but predicates.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    let ty = call.ty()?;
    call.finish()?;
    call.count(2..=2)?;
    if ty.bits() < 16 || ty.bits() > 64 {
        return call.unsupported(ty);
    }
    if let Some(what) = call.special(1) {
        let dst = call.wide_dst(0, ty, Width::AtLeast)?.0;
        return Ok((Op::Special { dst, what }, Class::Move));
    }
    match (call.args[0].clone(), call.args[1].clone()) {
        (Arg::Vector(parts), _) => {
            let bits = part_bits(call, ty, parts.len())?;
            let src = call.src(1, ty)?;
            let mut dst = Vec::new();
            for part in &parts {
                let target = call.dst_or_sink(part, Ty::Bits(bits), Width::Exact)?;
                dst.push(target.map(|(reg, _)| reg));
            }
            Ok((Op::Unpack { dst, bits, src }, Class::Move))
        }
        (_, Arg::Vector(parts)) => {
            let bits = part_bits(call, ty, parts.len())?;
            let src = call.srcs(1, Ty::Bits(bits))?;
            Ok((Op::Pack { dst: call.dst(0, ty)?, bits, src }, Class::Move))
        }
        _ => compute(call, ty, &[ty], map1(|a| a)),
    }
}

fn part_bits(call: &Call<'_, '_>, ty: Ty, parts: usize) -> Result<u32, crate::ParseError> {
    match (ty, parts) {
        (Ty::Bits(bits), 2 | 4) => Ok(bits / parts as u32),
        _ => call.error(format!("{parts} parts do not make a {ty:?}")),
    }
}
