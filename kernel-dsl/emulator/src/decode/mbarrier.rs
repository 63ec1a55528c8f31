//! Barriers that are objects in shared memory.

use super::call::{Call, Width};
use super::lanes::Decoded;
use super::memory::space;
use crate::ParseError;
use crate::program::{Class, Mbarrier, MbarrierOp, Op, Space, Src};
use crate::syntax::Arg;
use crate::types::Ty;

const B32: Ty = Ty::Bits(32);
const B64: Ty = Ty::Bits(64);

/// Decodes `mbarrier`.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    let kinds = [
        "init",
        "inval",
        "arrive",
        "arrive_drop",
        "expect_tx",
        "complete_tx",
        "test_wait",
        "try_wait",
    ];
    let Some(kind) = kinds.into_iter().find(|kind| call.has(kind)) else {
        return call.error("what the barrier does is missing");
    };
    let relaxed = call.has("relaxed");
    for name in ["release", "acquire", "cta", "cluster"] {
        call.has(name);
    }
    let expects = kind.starts_with("arrive") && call.has("expect_tx");
    let incomplete = kind.starts_with("arrive") && call.has("noComplete");
    let parity = call.has("parity");
    let space = space(call).unwrap_or(Space::Generic);
    call.has("b64");
    let (op, address) = match kind {
        "init" => {
            call.count(2..=2)?;
            (MbarrierOp::Init { count: call.src(1, B32)? }, call.address(0)?)
        }
        "inval" => {
            call.count(1..=1)?;
            (MbarrierOp::Invalidate, call.address(0)?)
        }
        "expect_tx" | "complete_tx" => {
            call.count(2..=2)?;
            let bytes = call.src(1, B32)?;
            let op = match kind {
                "expect_tx" => MbarrierOp::Expect { bytes },
                _ => MbarrierOp::Complete { bytes },
            };
            (op, call.address(0)?)
        }
        "test_wait" | "try_wait" => wait(call, kind == "try_wait", (parity, relaxed))?,
        _ => arrive(call, (kind == "arrive_drop", expects, incomplete), relaxed)?,
    };
    if parity && !kind.ends_with("wait") {
        return call.error("`.parity` is for waits");
    }
    call.finish()?;
    Ok((Op::Mbarrier(Box::new(Mbarrier { op, space, address })), Class::Barrier))
}

type Parts = (MbarrierOp, crate::program::Address);

fn wait(
    call: &mut Call<'_, '_>,
    suspends: bool,
    (parity, relaxed): (bool, bool),
) -> Result<Parts, ParseError> {
    // A hint of how long to suspend may follow.
    call.count(3..=if suspends { 4 } else { 3 })?;
    let phase = call.src(2, if parity { B32 } else { B64 })?;
    let op = MbarrierOp::Wait { suspends, parity, relaxed, phase, dst: call.pred(0)? };
    Ok((op, call.address(1)?))
}

fn arrive(
    call: &mut Call<'_, '_>,
    (drops, expects, incomplete): (bool, bool, bool),
    relaxed: bool,
) -> Result<Parts, ParseError> {
    call.count(1..=3)?;
    let has_state = !matches!(call.args[0], Arg::Address { .. });
    let at = usize::from(has_state);
    let dst = match call.args[0].clone() {
        arg if has_state => call.dst_or_sink(&arg, B64, Width::Exact)?.map(|(reg, _)| reg),
        _ => None,
    };
    let operand = if call.args.len() > at + 1 { Some(call.src(at + 1, B32)?) } else { None };
    let one = call.constant(1);
    let (count, expect): (Src, Option<Src>) = match (expects, operand) {
        (true, Some(bytes)) => (one, Some(bytes)),
        (true, None) => return call.error("the number of bytes is missing"),
        (false, count) => (count.unwrap_or(one), None),
    };
    if incomplete && operand.is_none() {
        return call.error("the count is missing");
    }
    let op = MbarrierOp::Arrive { count, expect, drops, incomplete, relaxed, dst };
    Ok((op, call.address(at)?))
}
