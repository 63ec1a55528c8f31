//! What an atomic operation makes of the value in memory.

use super::float::{Mode, add32};
use super::half::format;
use crate::number::{Round, add_odd};
use crate::program::Update;
use crate::types::{Ty, low_mask, sign_extend};
use std::sync::Arc;

/// The operations of `atom` and `red`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exch,
    Cas,
    Inc,
    Dec,
}

/// The operation that a modifier names.
pub(crate) fn parse(name: &str) -> Option<Operation> {
    Some(match name {
        "add" => Operation::Add,
        "min" => Operation::Min,
        "max" => Operation::Max,
        "and" => Operation::And,
        "or" => Operation::Or,
        "xor" => Operation::Xor,
        "exch" => Operation::Exch,
        "cas" => Operation::Cas,
        "inc" => Operation::Inc,
        "dec" => Operation::Dec,
        _ => return None,
    })
}

/// The operation on values of a type, unless PTX has none.
pub(crate) fn function(operation: Operation, ty: Ty) -> Option<Update> {
    let bits = ty.bits();
    let mask = low_mask(bits);
    let plain = matches!(ty, Ty::Bits(32 | 64));
    let integer = ty.is_integer() && bits >= 32;
    Some(match operation {
        Operation::Add if integer => Arc::new(move |old, b, _| old.wrapping_add(b) & mask),
        Operation::Add => add(ty)?,
        Operation::Min | Operation::Max if integer => {
            let max = operation == Operation::Max;
            let key = move |value: u64| match ty.is_signed() {
                true => i128::from(sign_extend(value, bits)),
                false => i128::from(value),
            };
            Arc::new(move |old, b, _| if (key(b) > key(old)) == max { b } else { old })
        }
        Operation::And if plain => Arc::new(|old, b, _| old & b),
        Operation::Or if plain => Arc::new(|old, b, _| old | b),
        Operation::Xor if plain => Arc::new(|old, b, _| old ^ b),
        Operation::Exch if plain => Arc::new(|_, b, _| b),
        Operation::Cas if plain || ty == Ty::Bits(16) => {
            Arc::new(|old, b, c| if old == b { c } else { old })
        }
        Operation::Inc if ty == Ty::Unsigned(32) => {
            Arc::new(|old, b, _| if old >= b { 0 } else { old + 1 })
        }
        Operation::Dec if ty == Ty::Unsigned(32) => {
            Arc::new(|old, b, _| if old == 0 || old > b { b } else { old - 1 })
        }
        _ => return None,
    })
}

fn add(ty: Ty) -> Option<Update> {
    // Atomic additions in global memory flush subnormals to zero on hardware for f32; those of our
    // kernels must not depend on it, so they are kept here.
    let mode = Mode { round: Round::Nearest, ftz: false, saturate: false };
    match ty {
        Ty::F32 => Some(Arc::new(move |old, b, _| add32(mode, old, b))),
        Ty::F64 => Some(Arc::new(|old, b, _| (f64::from_bits(old) + f64::from_bits(b)).to_bits())),
        _ => {
            let (format, pair) = format(ty)?;
            let one = move |a: u64, b: u64| {
                let sum = add_odd(format.decode(a & 0xffff), format.decode(b & 0xffff));
                format.encode(sum, Round::Nearest, false)
            };
            Some(Arc::new(move |old, b, _| match pair {
                true => one(old >> 16, b >> 16) << 16 | one(old, b),
                false => one(old, b),
            }))
        }
    }
}
