//! Asynchronous copies and their groups.

use super::call::Call;
use super::lanes::Decoded;
use super::memory::hints;
use crate::ParseError;
use crate::program::{
    AsyncCopy, BulkCopy, Class, CopyLimit, Mbarrier, MbarrierOp, Op, Queue, Space, TensorCopy,
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

fn dimensions(name: &str) -> Option<usize> {
    let count = name.strip_suffix('d')?.parse().ok()?;
    (1..=5).contains(&count).then_some(count)
}

/// `cp.async.bulk.tensor`
fn tensor_copy(call: &mut Call<'_, '_>) -> Decoded {
    let Some(rank) = call.pick(dimensions) else {
        return call.error("the number of dimensions is missing");
    };
    let Some(inwards) = direction(call) else {
        return call.error("copies go between global and shared memory");
    };
    call.has("tile");
    let how = if inwards { "mbarrier::complete_tx::bytes" } else { "bulk_group" };
    if !call.has(how) {
        return call.error("how it completes is missing");
    }
    let multicast = inwards && call.has("multicast::cluster");
    let policy = call.has("L2::cache_hint");
    let expected = 2 + usize::from(inwards) + usize::from(multicast) + usize::from(policy);
    call.count(expected..=expected)?;
    let (map, coordinates) = call.tensor(usize::from(inwards))?;
    if coordinates.len() != rank {
        return call.error(format!("{} coordinates, expected {rank}", coordinates.len()));
    }
    let shared = call.address(usize::from(!inwards))?;
    let barrier = if inwards { Some(call.address(2)?) } else { None };
    if multicast {
        // The only CTA of a cluster is the one that asks.
        call.src(3, Ty::Bits(16))?;
    }
    call.finish()?;
    Ok((Op::TensorCopy(Box::new(TensorCopy { shared, map, coordinates, barrier })), Class::Copy))
}

/// Whether a bulk copy goes into shared memory, or out of it.
fn direction(call: &mut Call<'_, '_>) -> Option<bool> {
    let inwards = call.pick(|name| match name {
        "shared::cluster" | "shared::cta" => Some(true),
        "global" => Some(false),
        _ => None,
    })?;
    let other = if inwards { "global" } else { "shared::cta" };
    call.has(other).then_some(inwards)
}

fn bulk(call: &mut Call<'_, '_>) -> Decoded {
    if call.has("commit_group") {
        return plain(call, Op::CommitGroup { queue: Queue::Bulk });
    }
    if call.has("wait_group") {
        return wait(call, Queue::Bulk);
    }
    let tensor = call.has("tensor");
    if tensor && !call.has("prefetch") {
        return tensor_copy(call);
    }
    if tensor || call.has("prefetch") {
        call.pick(dimensions);
        for name in ["L2", "global", "tile"] {
            call.has(name);
        }
        hints(call);
        call.tensor(0)?;
        call.finish()?;
        return Ok((Op::Nop, Class::Copy));
    }
    let Some(inwards) = direction(call) else {
        return call.error("copies go between global and shared memory");
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
