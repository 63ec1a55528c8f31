//! Which loads of a loop can run ahead of it.
//!
//! A load whose place depends on nothing that the loop computes, but for its counter, can be started
//! turns before it is read: a ring in shared memory holds what arrives until its turn comes.

use crate::infer::{element_bits, is_read_only};
use tessera_tile_ir::format::WHOLE;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Kernel, Op, OpId, Region, Value};

/// Bytes of the least copy.
pub(crate) const LEAST_COPY: usize = 4;
/// Bytes of the largest copy.
pub(crate) const MOST_COPY: usize = 16;

/// Loads of one loop that run ahead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ahead {
    /// The loads, in their order.
    pub(crate) loads: Vec<OpId>,
    /// What else must be computed to know where they load from, in its order.
    pub(crate) places: Vec<OpId>,
}

/// The loads that the loop over `region` can start ahead: those whose tiles dots multiply, in a loop
/// without loops.
pub(crate) fn ahead(kernel: &Kernel, region: &Region) -> Option<Ahead> {
    let op = |id: &OpId| kernel.op(*id);
    let is_dot = |id: &OpId| matches!(op(id).kind, OpKind::Dot | OpKind::DotScaled);
    let innermost = !region.ops.iter().any(|id| matches!(op(id).kind, OpKind::For { .. }));
    if !innermost || !region.ops.iter().any(is_dot) {
        return None;
    }
    let (mut loads, mut all_places) = (Vec::new(), Vec::new());
    for &id in region.ops.iter().filter(|id| can_wait_in_shared_memory(kernel, op(id))) {
        let mut places = Vec::new();
        let mut known = |value: &Value| place_of(kernel, region, *value, &mut places);
        if op(&id).operands.iter().all(&mut known) {
            loads.push(id);
            all_places.extend(places);
        }
    }
    let places = region.ops.iter().copied().filter(|id| all_places.contains(id)).collect();
    (!loads.is_empty()).then_some(Ahead { loads, places })
}

/// Whether a load gives a tile of rows that can be copied in whole pieces.
fn can_wait_in_shared_memory(kernel: &Kernel, op: &Op) -> bool {
    let (OpKind::Load(param) | OpKind::LoadUntil(param) | OpKind::LoadRows(param)) = op.kind else {
        return false;
    };
    let [result] = op.results.as_slice() else { return false };
    let ty = kernel.ty(*result);
    let bits = element_bits(ty.elem);
    let plain = |readers: &dyn Fn(&Op) -> bool| {
        let mut all = kernel.ops.iter().filter(|op| op.operands.contains(result));
        all.all(readers)
    };
    let can = match ty.elem {
        // Whoever decodes a window element by element asks for more than its codes.
        Elem::Packed(_) => 32 % bits == 0 && plain(&|op| op.kind == OpKind::DotScaled),
        Elem::Bool => false,
        _ => bits.is_multiple_of(8),
    };
    let bytes = ty.rows_cols()[1] * bits / 8;
    can && ty.shape.len() == 2 && is_read_only(kernel, param) && bytes >= MOST_COPY
}

/// Adds the ops that compute a value to `places`; false if it cannot be known ahead.
fn place_of(kernel: &Kernel, region: &Region, value: Value, places: &mut Vec<OpId>) -> bool {
    if region.args.contains(&value) {
        return region.args[0] == value;
    }
    let makes = |id: &&OpId| kernel.op(**id).results.contains(&value);
    let Some(&id) = region.ops.iter().find(makes) else { return true };
    if places.contains(&id) {
        return true;
    }
    let op = kernel.op(id);
    let can = match op.kind {
        OpKind::Load(param)
        | OpKind::LoadUntil(param)
        | OpKind::LoadRows(param)
        | OpKind::Gather(param) => is_read_only(kernel, param),
        OpKind::Dot | OpKind::DotScaled => false,
        _ => op.regions.is_empty(),
    };
    places.push(id);
    can && op.operands.iter().all(|operand| place_of(kernel, region, *operand, places))
}

/// Scale tiles, `[down, across]`, that a window of so many rows and columns touches, if that is known:
/// where it begins with a tile, or lies within one.
pub(crate) fn scale_tiles(
    [rows, cols]: [usize; 2],
    [tile_rows, tile_cols]: [usize; 2],
    [row_multiple, col_multiple]: [usize; 2],
) -> Option<[usize; 2]> {
    let along = |extent: usize, tile: usize, multiple: usize| match tile {
        WHOLE => None,
        _ if multiple.is_multiple_of(tile.min(extent)) => Some(extent.div_ceil(tile)),
        _ => None,
    };
    Some([along(rows, tile_rows, row_multiple)?, along(cols, tile_cols, col_multiple)?])
}
