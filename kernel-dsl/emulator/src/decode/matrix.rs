//! Tensor-core operations, and loads, stores and moves of their fragments.

use super::call::Call;
use super::lanes::Decoded;
use super::memory::space;
use crate::ParseError;
use crate::number;
use crate::program::{Class, Factors, Matrix, Mma, Op, Space};
use crate::types::Ty;

const B32: Ty = Ty::Bits(32);

fn aligned(call: &mut Call<'_, '_>) -> Result<(), ParseError> {
    if call.has("sync") && call.has("aligned") {
        return Ok(());
    }
    call.error("`.sync.aligned` is missing")
}

/// `mma.sync`
pub(crate) fn mma(call: &mut Call<'_, '_>) -> Decoded {
    aligned(call)?;
    let depth = call.pick(|name| name.strip_prefix("m16n8k")?.parse::<u32>().ok());
    let Some(depth) = depth else {
        return call.error("the shape is not known");
    };
    if !call.has("row") || !call.has("col") {
        return call.error("`.row.col` is missing");
    }
    let satfinite = call.has("satfinite");
    let types = [call.ty()?, call.ty()?, call.ty()?, call.ty()?];
    let [d, a, b, c] = types;
    let factors = factors(call, (a, b), depth, satfinite)?;
    let integers = matches!(factors, Factors::Bytes { .. });
    let half = match (d, c, integers) {
        (Ty::F32, Ty::F32, false) | (Ty::Signed(32), Ty::Signed(32), true) => false,
        (Ty::F16, Ty::F16, false) if a == Ty::F16 => true,
        _ => return call.error(format!("results of {d:?} and addends of {c:?} are not known")),
    };
    let element = factors.bits();
    // Sixteen rows, and eight columns, of `depth` elements are spread over 32 lanes.
    let (a_count, b_count) = (16 * depth * element / 1024, 8 * depth * element / 1024);
    let c_count = if half { 2 } else { 4 };
    call.count(4..=4)?;
    let mma = Mma {
        depth,
        factors,
        half,
        d: call.dsts(0, B32)?,
        a: call.srcs(1, B32)?,
        b: call.srcs(2, B32)?,
        c: call.srcs(3, if half || integers { B32 } else { Ty::F32 })?,
    };
    call.finish()?;
    let counts = [mma.d.len(), mma.a.len(), mma.b.len(), mma.c.len()];
    let want = [c_count, a_count, b_count, c_count].map(|count| count as usize);
    if counts != want {
        return call.error(format!("{counts:?} registers, expected {want:?}"));
    }
    Ok((Op::Mma(Box::new(mma)), Class::Mma))
}

/// What is multiplied, by its types and the depth of one instruction.
pub(super) fn factors(
    call: &Call<'_, '_>,
    (a, b): (Ty, Ty),
    depth: u32,
    saturate: bool,
) -> Result<Factors, ParseError> {
    let byte = |ty: Ty| matches!(ty, Ty::Signed(8) | Ty::Unsigned(8));
    let factors = match (a, b, depth) {
        (Ty::F16, Ty::F16, 8 | 16) => Factors::Float(number::F16),
        (Ty::Bf16, Ty::Bf16, 8 | 16) => Factors::Float(number::BF16),
        (Ty::Tf32, Ty::Tf32, 4 | 8) => Factors::Float(number::TF32),
        (Ty::E4m3 | Ty::E5m2, Ty::E4m3 | Ty::E5m2, 32) => {
            let format = |ty: Ty| if ty == Ty::E4m3 { number::E4M3 } else { number::E5M2 };
            Factors::Eight { a: format(a), b: format(b) }
        }
        _ if byte(a) && byte(b) && matches!(depth, 16 | 32) => {
            let [a_signed, b_signed] = [a, b].map(Ty::is_signed);
            Factors::Bytes { a_signed, b_signed, saturate }
        }
        _ => {
            return call
                .error(format!("factors of {a:?} and {b:?} with depth {depth} are not known"));
        }
    };
    if saturate && !matches!(factors, Factors::Bytes { .. }) {
        return call.error("`.satfinite` is for integers");
    }
    Ok(factors)
}

/// `ldmatrix`, `stmatrix` and `movmatrix`
pub(crate) fn fragments(call: &mut Call<'_, '_>) -> Decoded {
    aligned(call)?;
    if !call.has("m8n8") {
        return call.error("only `.m8n8` is known");
    }
    let transposed = call.has("trans");
    if call.name == "movmatrix" {
        if call.ty()? != Ty::Bits(16) || !transposed {
            return call.error("only `.trans.b16` is known");
        }
        call.count(2..=2)?;
        let (dst, src) = (call.dst(0, B32)?, call.src(1, B32)?);
        call.finish()?;
        return Ok((Op::MoveMatrix { dst, src }, Class::Matrix));
    }
    let count = call.pick(|name| match name {
        "x1" => Some(1),
        "x2" => Some(2),
        "x4" => Some(4),
        _ => None,
    });
    let Some(count) = count else {
        return call.error("the number of matrices is missing");
    };
    let space = space(call).unwrap_or(Space::Generic);
    if call.ty()? != Ty::Bits(16) {
        return call.error("only `.b16` is known");
    }
    call.count(2..=2)?;
    let load = call.name == "ldmatrix";
    let address = call.address(usize::from(load))?;
    let (dst, src) = match load {
        true => (call.dsts(0, B32)?, Vec::new()),
        false => (Vec::new(), call.srcs(1, B32)?),
    };
    if dst.len() + src.len() != count {
        return call.error(format!("expected {count} registers"));
    }
    call.finish()?;
    let matrix = Matrix { space, address, transposed };
    match load {
        true => Ok((Op::LoadMatrix { matrix, dst }, Class::Matrix)),
        false => Ok((Op::StoreMatrix { matrix, src }, Class::Matrix)),
    }
}
