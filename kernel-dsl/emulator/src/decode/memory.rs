//! Loads, stores, atomic operations, fences and conversions of addresses.

use super::call::{Call, Width};
use super::lanes::Decoded;
use super::update;
use crate::ParseError;
use crate::program::{Access, Class, Fence, Op, Order, Reg, Space, Src};
use crate::syntax::Arg;
use crate::types::Ty;

/// Takes a state space.
pub(crate) fn space(call: &mut Call<'_, '_>) -> Option<Space> {
    call.pick(|name| match name {
        "param" | "param::entry" => Some(Space::Param),
        "global" => Some(Space::Global),
        "const" => Some(Space::Const),
        // A cluster is one CTA here, so its window is the CTA's.
        "shared" | "shared::cta" | "shared::cluster" => Some(Space::Shared),
        "local" => Some(Space::Local),
        _ => None,
    })
}

/// Takes the scope of an ordered operation; all are alike to an interleaving machine.
fn scope(call: &mut Call<'_, '_>) {
    call.pick(|name| matches!(name, "cta" | "cluster" | "gpu" | "sys").then_some(()));
}

fn order(call: &mut Call<'_, '_>) -> Order {
    let order = call.pick(|name| match name {
        "weak" => Some(Order::Weak),
        "relaxed" | "volatile" | "mmio" => Some(Order::Relaxed),
        "acquire" => Some(Order::Acquire),
        "release" => Some(Order::Release),
        "acq_rel" => Some(Order::AcquireRelease),
        _ => None,
    });
    order.unwrap_or_default()
}

/// Takes what only advises the caches; returns whether a cache policy operand follows.
pub(crate) fn hints(call: &mut Call<'_, '_>) -> bool {
    const PLAIN: [&str; 8] = ["ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc"];
    while call.pick(|name| PLAIN.contains(&name).then_some(())).is_some() {}
    const LEVELS: [&str; 15] = [
        "L1::evict_normal",
        "L1::evict_unchanged",
        "L1::evict_first",
        "L1::evict_last",
        "L1::no_allocate",
        "L2::evict_normal",
        "L2::evict_first",
        "L2::evict_last",
        "L2::64B",
        "L2::128B",
        "L2::256B",
        "evict_normal",
        "evict_first",
        "evict_last",
        "unified",
    ];
    while call.pick(|name| LEVELS.contains(&name).then_some(())).is_some() {}
    call.has("L2::cache_hint")
}

fn vector(call: &mut Call<'_, '_>) -> usize {
    let count = call.pick(|name| match name {
        "v2" => Some(2),
        "v4" => Some(4),
        "v8" => Some(8),
        _ => None,
    });
    count.unwrap_or(1)
}

/// What loads and stores share.
struct Head {
    access: Access,
    ty: Ty,
    vector: usize,
    policy: bool,
}

fn head(call: &mut Call<'_, '_>, address: usize) -> Result<Head, ParseError> {
    let mut order = order(call);
    scope(call);
    let read_only = call.has("nc");
    let space = space(call).unwrap_or(Space::Generic);
    if read_only && space != Space::Global {
        return call.error("`.nc` is for global memory");
    }
    let policy = hints(call);
    let vector = vector(call);
    let ty = call.ty()?;
    if matches!(ty, Ty::Pred) || ty.bits() > 64 || is_packed(ty) {
        return call.unsupported(ty);
    }
    let bytes = ty.bytes();
    if vector as u32 * bytes > 32 {
        return call.error("a vector has at most 32 bytes");
    }
    if space == Space::Param || space == Space::Const {
        order = Order::Weak;
    }
    let address = call.address(address)?;
    Ok(Head { access: Access { space, address, bytes, order }, ty, vector, policy })
}

fn is_packed(ty: Ty) -> bool {
    !matches!(ty, Ty::Bits(_) | Ty::Unsigned(_) | Ty::Signed(_) | Ty::F32 | Ty::F64)
}

/// The cost class of an access.
fn class(space: Space) -> Class {
    match space {
        Space::Shared => Class::Shared,
        Space::Param | Space::Local => Class::Local,
        Space::Global | Space::Const | Space::Generic => Class::Global,
    }
}

/// `ld`
pub(crate) fn load(call: &mut Call<'_, '_>) -> Decoded {
    let Head { access, ty, vector, policy } = head(call, 1)?;
    let expected = 2 + usize::from(policy);
    call.count(expected..=expected)?;
    let parts = call.parts(0)?;
    if parts.len() != vector {
        return call.error(format!("{} destinations, expected {vector}", parts.len()));
    }
    let mut dst = Vec::new();
    let mut dst_bits = ty.bits();
    for part in &parts {
        let target = call.dst_or_sink(part, ty, Width::AtLeast)?;
        dst_bits = dst_bits.max(target.map_or(0, |(_, bits)| bits));
        dst.push(target.map(|(reg, _)| reg));
    }
    call.finish()?;
    let class = class(access.space);
    let sign = ty.is_signed().then_some(ty.bits());
    Ok((Op::Load { access, dst, sign, dst_bits }, class))
}

/// `st`
pub(crate) fn store(call: &mut Call<'_, '_>) -> Decoded {
    let Head { access, ty, vector, policy } = head(call, 0)?;
    if matches!(access.space, Space::Param | Space::Const) {
        return call.error("this space is read-only");
    }
    let expected = 2 + usize::from(policy);
    call.count(expected..=expected)?;
    let parts = call.parts(1)?;
    if parts.len() != vector {
        return call.error(format!("{} sources, expected {vector}", parts.len()));
    }
    let mut src = Vec::new();
    for part in &parts {
        src.push(call.value(part, ty, Width::AtLeast)?);
    }
    call.finish()?;
    let class = class(access.space);
    Ok((Op::Store { access, src }, class))
}

/// `atom` and `red`
pub(crate) fn atomic(call: &mut Call<'_, '_>) -> Decoded {
    let returns = call.name == "atom";
    let order = match order(call) {
        Order::Weak => Order::Relaxed,
        order => order,
    };
    scope(call);
    let space = space(call).unwrap_or(Space::Generic);
    if !matches!(space, Space::Global | Space::Shared | Space::Generic) {
        return call.error("atomic operations are for global and shared memory");
    }
    let policy = hints(call);
    let Some(operation) = call.pick(update::parse) else {
        return call.error("the operation is missing");
    };
    call.has("noftz");
    let count = vector(call);
    let ty = call.ty()?;
    let Some(f) = update::function(operation, ty) else {
        return call.unsupported(ty);
    };
    let at = usize::from(returns);
    let swaps = operation == update::Operation::Cas;
    let expected = at + 2 + usize::from(swaps) + usize::from(policy);
    call.count(expected..=expected)?;
    let address = call.address(at)?;
    let src = sources(call, at + 1, ty, swaps)?;
    let dst = if returns { Some(results(call, ty)?) } else { None };
    if src.len() != count || dst.as_ref().is_some_and(|dst| dst.len() != count) {
        return call.error(format!("expected {count} values"));
    }
    call.finish()?;
    let access = Access { space, address, bytes: ty.bytes(), order };
    Ok((Op::Atomic { access, f, dst, src }, Class::Atomic))
}

fn results(call: &mut Call<'_, '_>, ty: Ty) -> Result<Vec<Reg>, ParseError> {
    if call.args[0] == Arg::Word("_") {
        return Ok(vec![call.body.register()]);
    }
    call.dsts(0, ty)
}

fn sources(
    call: &mut Call<'_, '_>,
    first: usize,
    ty: Ty,
    two: bool,
) -> Result<Vec<[Src; 2]>, ParseError> {
    let values = call.srcs(first, ty)?;
    let second = if two { call.srcs(first + 1, ty)? } else { values.clone() };
    Ok(values.into_iter().zip(second).map(|(b, c)| [b, c]).collect())
}

/// `cvta`
pub(crate) fn convert_address(call: &mut Call<'_, '_>) -> Decoded {
    let to_space = call.has("to");
    let Some(space) = space(call) else {
        return call.error("the state space is missing");
    };
    let ty = call.ty()?;
    if ty != Ty::Unsigned(64) {
        return call.unsupported(ty);
    }
    call.count(2..=2)?;
    let (src, dst) = (call.src(1, ty)?, call.dst(0, ty)?);
    call.finish()?;
    match to_space {
        true => Ok((Op::FromGeneric { dst, src, space }, Class::Integer)),
        false => Ok((Op::ToGeneric { dst, src, space }, Class::Integer)),
    }
}

/// `isspacep`
pub(crate) fn is_space(call: &mut Call<'_, '_>) -> Decoded {
    let Some(space) = space(call) else {
        return call.error("the state space is missing");
    };
    call.count(2..=2)?;
    let (src, dst) = (call.src(1, Ty::Bits(64))?, call.pred(0)?);
    call.finish()?;
    Ok((Op::IsSpace { dst, src, space }, Class::Integer))
}

/// `mapa`: in a cluster of one CTA, an address is its own image.
pub(crate) fn map_address(call: &mut Call<'_, '_>) -> Decoded {
    space(call);
    let ty = call.ty()?;
    call.args.truncate(2);
    super::lanes::compute(call, ty, &[ty], super::lanes::map1(|a| a))
}

/// `prefetch`, `discard` and `applypriority`: nothing to do, but the address must be an operand.
pub(crate) fn prefetch(call: &mut Call<'_, '_>) -> Decoded {
    space(call);
    call.pick(|name| matches!(name, "L1" | "L2" | "tensormap").then_some(()));
    hints(call);
    call.count(1..=2)?;
    call.address(0)?;
    call.finish()?;
    Ok((Op::Nop, Class::Global))
}

/// `membar` and `fence`
pub(crate) fn fence(call: &mut Call<'_, '_>) -> Decoded {
    call.count(0..=0)?;
    let mut fence = Fence::Memory;
    if call.name == "membar" {
        call.pick(|name| matches!(name, "cta" | "gl" | "sys").then_some(()));
    } else if call.has("proxy") {
        fence = match call.has("async") {
            true => Fence::Proxy,
            false if call.has("alias") => Fence::Memory,
            false => return call.error("this proxy is not known"),
        };
        space(call);
    } else if call.has("mbarrier_init") {
        call.has("release");
        scope(call);
        fence = Fence::Barriers;
    } else {
        call.has("sc");
        order(call);
        scope(call);
    }
    call.finish()?;
    Ok((Op::Fence(fence), Class::Barrier))
}
