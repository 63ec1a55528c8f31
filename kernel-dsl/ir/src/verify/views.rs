//! The rules of ops on views.

use super::ops::mismatch;
use super::{Checker, Wrong};
use crate::kernel::{Access, Op, ParamKind};
use crate::op::OpKind;
use crate::types::{Elem, Type};

/// What an op does to its view.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    Read,
    Write,
    Update,
}

impl Checker<'_> {
    /// Checks an op on a view; `None` for any other op.
    pub(super) fn access(&self, op: &Op, x: &[&Type], out: &[&Type]) -> Option<Result<(), Wrong>> {
        let (param, deed) = match op.kind {
            OpKind::Load(param)
            | OpKind::LoadUntil(param)
            | OpKind::LoadRows(param)
            | OpKind::Gather(param) => (param, Deed::Read),
            OpKind::Store(param)
            | OpKind::StoreUntil(param)
            | OpKind::StoreRows(param)
            | OpKind::Scatter(param) => (param, Deed::Write),
            OpKind::Atomic(param, _) => (param, Deed::Update),
            _ => return None,
        };
        Some(self.check_access(op, (param, deed), x, out))
    }

    fn check_access(
        &self,
        op: &Op,
        (param, deed): (usize, Deed),
        x: &[&Type],
        out: &[&Type],
    ) -> Result<(), Wrong> {
        let Some(param) = self.kernel.params.get(param) else {
            return Err(("K013", format!("there is no parameter {param}")));
        };
        let name = &param.name;
        let ParamKind::View { elem, access, dims } = &param.kind else {
            return Err(("K013", format!("`{name}` is a number, not a view")));
        };
        match (deed, access) {
            (Deed::Read, Access::Write) => {
                return Err(("K014", format!("`{name}` is an Out: it cannot be read")));
            }
            (Deed::Write, Access::Read) => {
                return Err(("K014", format!("`{name}` is an In: it cannot be written")));
            }
            (Deed::Update, Access::Read | Access::Write) => {
                let message = format!("an atomic reads and writes `{name}`: make it an InOut");
                return Err(("K014", message));
            }
            _ => {}
        }
        if deed == Deed::Update && !elem.is_int() {
            let message = format!("`{name}` holds {elem}: atomics are for integers");
            return Err(("K020", message));
        }
        if let (OpKind::LoadUntil(_), Elem::Packed(format)) = (&op.kind, elem) {
            let message = format!("`{name}` holds {}: it cannot end early", format.name);
            return Err(("K017", message));
        }
        let (indices, tile) = match (deed, x, out) {
            (Deed::Read, indices, [tile]) => (indices, *tile),
            (Deed::Write | Deed::Update, [indices @ .., tile], []) => (indices, *tile),
            _ => return Err(("K010", format!("`{}` of other operands", op.kind.name()))),
        };
        if tile.elem == *elem && fits(&op.kind, indices, tile, dims.len()) {
            return Ok(());
        }
        let (code, message) = mismatch(&op.kind, x, out);
        let takes = takes(&op.kind);
        let message = message.replacen("other types", takes, 1);
        Err((code, format!("{message}; `{name}` has {} axes of {elem}", dims.len())))
    }
}

fn fits(kind: &OpKind, indices: &[&Type], tile: &Type, rank: usize) -> bool {
    let i64s = |ty: &Type, shape: &[usize]| *ty == Type::tile(Elem::I64, shape);
    match kind {
        OpKind::LoadRows(_) | OpKind::StoreRows(_) => match (indices, tile.shape.as_slice()) {
            ([rows, col], [count, _]) => rank == 2 && i64s(rows, &[*count]) && i64s(col, &[]),
            _ => false,
        },
        OpKind::Gather(_) | OpKind::Scatter(_) => {
            indices.len() == rank && indices.iter().all(|ty| i64s(ty, &tile.shape))
        }
        OpKind::Atomic(..) if !tile.shape.is_empty() => false,
        OpKind::LoadUntil(_) | OpKind::StoreUntil(_) => {
            let scalars = indices.iter().all(|ty| i64s(ty, &[]));
            indices.len() == rank + 1 && scalars && tile.shape.len() <= rank
        }
        _ => {
            let scalars = indices.iter().all(|ty| i64s(ty, &[]));
            indices.len() == rank && scalars && tile.shape.len() <= rank
        }
    }
}

fn takes(kind: &OpKind) -> &'static str {
    match kind {
        OpKind::LoadRows(_) => "i64[rows] and an i64 column of a view of 2 axes",
        OpKind::StoreRows(_) => "i64[rows], an i64 column of a view of 2 axes, and the rows",
        OpKind::Gather(_) => "one i64 tile of the result's shape per axis",
        OpKind::Scatter(_) => "one i64 tile of the values' shape per axis, and the values",
        OpKind::Atomic(..) => "one i64 per axis and one number",
        OpKind::LoadUntil(_) => {
            "one i64 per axis and an end, for a tile of no more axes than the view"
        }
        OpKind::StoreUntil(_) => {
            "one i64 per axis, an end and a tile of no more axes than the view"
        }
        OpKind::Store(_) => "one i64 per axis and a tile of no more axes than the view",
        _ => "one i64 per axis, for a tile of no more axes than the view",
    }
}
