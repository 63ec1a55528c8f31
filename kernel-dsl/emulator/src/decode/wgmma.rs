//! Tensor-core operations of a group of four warps, with factors in shared memory.

use super::call::Call;
use super::lanes::Decoded;
use super::matrix::factors;
use crate::program::{Class, Factors, Left, Op, Queue, Wgmma};
use crate::syntax::Arg;
use crate::types::Ty;

const B32: Ty = Ty::Bits(32);
const B64: Ty = Ty::Bits(64);

/// Decodes `wgmma`.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    let kinds = ["fence", "mma_async", "commit_group", "wait_group"];
    let Some(kind) = kinds.into_iter().find(|kind| call.has(kind)) else {
        return call.error("this instruction is not known");
    };
    if !call.has("sync") || !call.has("aligned") {
        return call.error("`.sync.aligned` is missing");
    }
    if kind == "mma_async" {
        return multiply(call);
    }
    call.finish()?;
    match kind {
        "wait_group" => {
            call.count(1..=1)?;
            let Arg::Int(left @ 0..=7) = call.args[0] else {
                return call.error("the number of groups must be from 0 to 7");
            };
            let left = Some(left as u32);
            let op = Op::WaitGroup { queue: Queue::Products, read: false, left };
            Ok((op, Class::Barrier))
        }
        _ => {
            call.count(0..=0)?;
            let op = match kind {
                "fence" => Op::WgmmaFence,
                _ => Op::CommitGroup { queue: Queue::Products },
            };
            Ok((op, Class::Barrier))
        }
    }
}

/// `m64nNkK`
fn shape(name: &str) -> Option<(u32, u32)> {
    let (columns, depth) = name.strip_prefix("m64n")?.split_once('k')?;
    Some((columns.parse().ok()?, depth.parse().ok()?))
}

fn multiply(call: &mut Call<'_, '_>) -> Decoded {
    let Some((columns, depth)) = call.pick(shape) else {
        return call.error("the shape is not known");
    };
    let saturate = call.has("satfinite");
    let [d, a, b] = [call.ty()?, call.ty()?, call.ty()?];
    call.finish()?;
    // An instruction always takes 32 bytes of a row.
    if depth * a.bits() != 256 {
        return call.error(format!("factors of {a:?} and {b:?} with depth {depth} are not known"));
    }
    let factors = factors(call, (a, b), depth, saturate)?;
    let integers = matches!(factors, Factors::Bytes { .. });
    let half = match (d, integers) {
        (Ty::F32, false) | (Ty::Signed(32), true) => false,
        (Ty::F16, false) if a != Ty::Bf16 && a != Ty::Tf32 => true,
        _ => return call.error(format!("results of {d:?} are not known")),
    };
    if !(8..=256).contains(&columns) || !columns.is_multiple_of(8) {
        return call.error(format!("{columns} columns are not possible"));
    }
    let left = match call.args.get(1) {
        Some(Arg::Vector(_)) => Left::Registers(call.srcs(1, B32)?),
        _ => Left::Descriptor(call.src(1, B64)?),
    };
    let from_registers = matches!(left, Left::Registers(_));
    let halves = matches!(a, Ty::F16 | Ty::Bf16);
    let signs = if integers { 0 } else { 2 };
    let turns = if halves { 2 - usize::from(from_registers) } else { 0 };
    call.count(4 + signs + turns..=4 + signs + turns)?;
    let mut flags = [false; 4];
    for (index, flag) in flags[..signs + turns].iter_mut().enumerate() {
        *flag = match (&call.args[4 + index], index < 2) {
            (Arg::Int(1), true) | (Arg::Int(0), false) => false,
            (Arg::Int(u64::MAX), true) | (Arg::Int(1), false) => true,
            _ => return call.error(format!("operand {} is not possible", index + 5)),
        };
    }
    let wgmma = Wgmma {
        columns,
        depth,
        factors,
        half,
        d: call.dsts(0, if d == Ty::F32 { d } else { B32 })?,
        left,
        right: call.src(2, B64)?,
        accumulate: call.condition(3)?,
        negate: [flags[0], flags[1]],
        // From registers, A is never transposed and its flag is not written.
        transpose: if from_registers { [false, flags[2]] } else { [flags[2], flags[3]] },
    };
    let expected = (columns / if half { 4 } else { 2 }) as usize;
    let registers = if let Left::Registers(registers) = &wgmma.left { registers.len() } else { 4 };
    if wgmma.d.len() != expected || registers != 4 {
        return call.error(format!("expected {expected} registers for D and 4 for A"));
    }
    Ok((Op::Wgmma(Box::new(wgmma)), Class::Mma))
}
