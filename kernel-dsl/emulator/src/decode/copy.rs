//! Asynchronous copies and their groups.

use super::call::Call;
use super::lanes::Decoded;
use super::memory::hints;
use crate::ParseError;
use crate::program::{
    AsyncCopy, BulkCopy, Class, CopyLimit, Mbarrier, MbarrierOp, Op, Queue, Space,
};
use crate::syntax::Arg;
use crate::types::Ty;

const B32: Ty = Ty::Bits(32);

/// `cp.async` in all its forms.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    if !call.has("async") {
        return call.error("only `cp.async` is known");
    }
    if call.has("bulk") {
        return bulk(call);
    }
    if call.has("commit_group") {
        return plain(call, Op::CommitGroup { queue: Queue::Copies });
    }
    if call.has("wait_all") {
        return plain(call, Op::WaitGroup { queue: Queue::Copies, read: false, left: None });
    }
    if call.has("wait_group") {
        return wait(call, Queue::Copies);
    }
    if call.has("mbarrier") {
        return arrive(call);
    }
    copy(call)
}

fn plain(call: &mut Call<'_, '_>, op: Op) -> Decoded {
    call.finish()?;
    call.count(0..=0)?;
    Ok((op, Class::Copy))
}

fn immediate(call: &Call<'_, '_>, index: usize) -> Result<u32, ParseError> {
    match call.args.get(index) {
        Some(&Arg::Int(value)) if value <= u64::from(u32::MAX) => Ok(value as u32),
        _ => call.error(format!("operand {} must be a number", index + 1)),
    }
}

fn wait(call: &mut Call<'_, '_>, queue: Queue) -> Decoded {
    let read = queue == Queue::Bulk && call.has("read");
    call.finish()?;
    call.count(1..=1)?;
    let left = Some(immediate(call, 0)?);
    Ok((Op::WaitGroup { queue, read, left }, Class::Copy))
}

/// `cp.async.mbarrier.arrive`
fn arrive(call: &mut Call<'_, '_>) -> Decoded {
    if !call.has("arrive") {
        return call.error("what the barrier does is missing");
    }
    let counted = !call.has("noinc");
    let space = super::memory::space(call).unwrap_or(Space::Generic);
    call.has("b64");
    call.count(1..=1)?;
    let address = call.address(0)?;
    call.finish()?;
    let op = MbarrierOp::ArriveAfterCopies { counted };
    Ok((Op::Mbarrier(Box::new(Mbarrier { op, space, address })), Class::Copy))
}

fn copy(call: &mut Call<'_, '_>) -> Decoded {
    let all_levels = call.has("ca");
    if !all_levels && !call.has("cg") {
        return call.error("`.ca` or `.cg` is missing");
    }
    let shared = call.has("shared") || call.has("shared::cta");
    if !shared || !call.has("global") {
        return call.error("copies go from global to shared memory");
    }
    let policy = hints(call);
    let count = call.args.len() - usize::from(policy);
    if !(3..=4).contains(&count) {
        return call.error("three or four operands are expected");
    }
    let (dst, src) = (call.address(0)?, call.address(1)?);
    let bytes = immediate(call, 2)?;
    if !matches!((all_levels, bytes), (true, 4 | 8 | 16) | (false, 16)) {
        return call.error(format!("{bytes} bytes cannot be copied so"));
    }
    let limit = match (count, call.args.get(3).cloned()) {
        (3, _) => CopyLimit::None,
        (_, Some(Arg::Word(name))) if call.is_predicate(name) => {
            CopyLimit::Ignore(call.condition(3)?)
        }
        (_, Some(Arg::Not(_))) => CopyLimit::Ignore(call.condition(3)?),
        _ => CopyLimit::Bytes(call.src(3, B32)?),
    };
    call.finish()?;
    Ok((Op::AsyncCopy(Box::new(AsyncCopy { dst, src, bytes, limit })), Class::Copy))
}

fn bulk(call: &mut Call<'_, '_>) -> Decoded {
    if call.has("commit_group") {
        return plain(call, Op::CommitGroup { queue: Queue::Bulk });
    }
    if call.has("wait_group") {
        return wait(call, Queue::Bulk);
    }
    if call.has("tensor") {
        return call.error("copies of tensors are not known");
    }
    if call.has("prefetch") {
        call.has("L2");
        call.has("global");
        hints(call);
        call.address(0)?;
        call.finish()?;
        return Ok((Op::Nop, Class::Copy));
    }
    let inwards = call.pick(|name| match name {
        "shared::cluster" | "shared::cta" => Some(true),
        "global" => Some(false),
        _ => None,
    });
    let from =
        call.pick(|name| matches!(name, "global" | "shared::cta").then_some(name == "global"));
    let inwards = match (inwards, from) {
        (Some(true), Some(true)) => true,
        (Some(false), Some(false)) => false,
        _ => return call.error("copies go between global and shared memory"),
    };
    let completes = match inwards {
        true => call.has("mbarrier::complete_tx::bytes"),
        false => call.has("bulk_group"),
    };
    if !completes {
        return call.error("how it completes is missing");
    }
    let policy = call.has("L2::cache_hint");
    let expected = 3 + usize::from(inwards) + usize::from(policy);
    call.count(expected..=expected)?;
    let (dst, src) = (call.address(0)?, call.address(1)?);
    let bytes = call.src(2, B32)?;
    let barrier = if inwards { Some(call.address(3)?) } else { None };
    call.finish()?;
    Ok((Op::BulkCopy(Box::new(BulkCopy { dst, src, bytes, barrier })), Class::Copy))
}
