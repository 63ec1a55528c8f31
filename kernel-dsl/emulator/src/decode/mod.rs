//! Instructions' text to what is executed: one file for each group of instructions.

pub(crate) mod bits;
pub(crate) mod call;
pub(crate) mod compare;
pub(crate) mod control;
pub(crate) mod convert;
pub(crate) mod copy;
pub(crate) mod float;
pub(crate) mod half;
pub(crate) mod integer;
pub(crate) mod lanes;
pub(crate) mod matrix;
pub(crate) mod mbarrier;
pub(crate) mod memory;
pub(crate) mod mov;
pub(crate) mod special;
pub(crate) mod update;
pub(crate) mod warp;
pub(crate) mod wgmma;

use crate::types::Ty;
use call::Call;
use lanes::Decoded;

/// Decodes one instruction.
pub(crate) fn decode(call: &mut Call<'_, '_>) -> Decoded {
    match call.name {
        "mov" | "and" | "or" | "xor" | "not" if call.peek_ty() == Some(Ty::Pred) => {
            compare::predicates(call)
        }
        "mov" => mov::decode(call),
        "ld" | "ldu" => memory::load(call),
        "st" => memory::store(call),
        "atom" | "red" => memory::atomic(call),
        "cvta" => memory::convert_address(call),
        "isspacep" => memory::is_space(call),
        "mapa" => memory::map_address(call),
        "prefetch" | "prefetchu" | "discard" | "applypriority" => memory::prefetch(call),
        "membar" | "fence" => memory::fence(call),
        "setp" => compare::setp(call),
        "set" => compare::set(call),
        "selp" => compare::selp(call),
        "slct" => compare::slct(call),
        "testp" => compare::testp(call),
        "cvt" => convert::decode(call),
        "bra" => control::branch(call),
        "ret" | "exit" | "trap" => control::end(call),
        "bar" | "barrier" => control::barrier(call),
        "nanosleep" => control::advice(call, &["u32"]),
        "griddepcontrol" => control::advice(call, &["wait", "launch_dependents"]),
        "setmaxnreg" => control::advice(call, &["inc", "dec", "sync", "aligned", "u32"]),
        "cp" => copy::decode(call),
        "mbarrier" => mbarrier::decode(call),
        "wgmma" => wgmma::decode(call),
        "mma" => matrix::mma(call),
        "ldmatrix" | "stmatrix" | "movmatrix" => matrix::fragments(call),
        "shfl" => warp::shuffle(call),
        "vote" => warp::vote(call),
        "match" => warp::matches(call),
        "redux" => warp::redux(call),
        "elect" => warp::elect(call),
        "activemask" => warp::active_mask(call),
        "rsqrt" | "sin" | "cos" | "lg2" | "sqrt" | "rcp" | "copysign" => float::decode(call),
        _ => arithmetic(call),
    }
}

/// Instructions that exist for several kinds of numbers.
fn arithmetic(call: &mut Call<'_, '_>) -> Decoded {
    match call.peek_ty() {
        Some(Ty::F32 | Ty::F64 | Ty::F32x2) => float::decode(call),
        Some(Ty::F16 | Ty::F16x2 | Ty::Bf16 | Ty::Bf16x2) => half::decode(call),
        Some(_) => integer::decode(call),
        None => call.error("this instruction is not known"),
    }
}
