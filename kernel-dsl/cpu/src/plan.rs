//! Which values are computed where they are used, and which are kept.
//!
//! A tile with one user is folded into the loop of that user; index changes (broadcasts,
//! transposes, slices) and loads of arrays that nobody writes are folded into all their users.

use crate::class::Class;
use tessera_tile_ir::op::{OpKind, Unary};
use tessera_tile_ir::{Access, Elem, Kernel, Op, OpId, ParamKind, Region, Value};

/// Where an op stands: the region, and its place in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) region: usize,
    pub(crate) at: usize,
}

/// The decisions for one kernel.
#[derive(Debug)]
pub(crate) struct Plan<'k> {
    kernel: &'k Kernel,
    /// The op that makes a value; none for arguments of regions.
    def: Vec<Option<OpId>>,
    users: Vec<Vec<OpId>>,
    place: Vec<Option<Place>>,
    /// The region that a value is an argument of.
    argument_of: Vec<Option<usize>>,
    folded: Vec<bool>,
    regions: usize,
}

impl<'k> Plan<'k> {
    pub(crate) fn new(kernel: &'k Kernel) -> Self {
        let mut plan = Self {
            kernel,
            def: vec![None; kernel.values.len()],
            users: vec![Vec::new(); kernel.values.len()],
            place: vec![None; kernel.ops.len()],
            argument_of: vec![None; kernel.values.len()],
            folded: vec![false; kernel.values.len()],
            regions: 0,
        };
        plan.walk(&kernel.grid);
        plan.walk(&kernel.body);
        // In order, so that what an op folds is known when the op itself is judged.
        let results = kernel.ops.iter().flat_map(|op| op.results.iter().copied());
        for value in results.collect::<Vec<_>>() {
            plan.folded[index(value)] = plan.folds(value);
        }
        plan
    }

    fn walk(&mut self, region: &Region) {
        let number = self.regions;
        self.regions += 1;
        region.args.iter().for_each(|&arg| self.argument_of[index(arg)] = Some(number));
        for (at, &id) in region.ops.iter().enumerate() {
            let op = self.kernel.op(id);
            self.place[id.0 as usize] = Some(Place { region: number, at });
            for &result in &op.results {
                self.def[index(result)] = Some(id);
            }
            for &operand in &op.operands {
                let users = &mut self.users[index(operand)];
                if users.last() != Some(&id) {
                    users.push(id);
                }
            }
            op.regions.iter().for_each(|region| self.walk(region));
        }
    }

    /// Whether a value is computed where it is used.
    pub(crate) fn is_folded(&self, value: Value) -> bool {
        self.folded[index(value)]
    }

    /// The op that makes a value.
    pub(crate) fn def(&self, value: Value) -> Option<(OpId, &'k Op)> {
        self.def[index(value)].map(|id| (id, self.kernel.op(id)))
    }

    /// Ops that read a value.
    pub(crate) fn users(&self, value: Value) -> &[OpId] {
        &self.users[index(value)]
    }

    /// Ops that read a value, directly or through folded values.
    pub(crate) fn readers(&self, value: Value) -> Vec<OpId> {
        let mut readers = Vec::new();
        for &user in self.users(value) {
            match self.kernel.op(user).results.as_slice() {
                &[result] if self.is_folded(result) => readers.extend(self.readers(result)),
                _ => readers.push(user),
            }
        }
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// Where an op of the body stands.
    pub(crate) fn place(&self, id: OpId) -> Option<Place> {
        self.place[id.0 as usize]
    }

    /// The region that a value is made in.
    pub(crate) fn region_of(&self, value: Value) -> Option<usize> {
        let by_op = self.def[index(value)].and_then(|id| self.place(id)).map(|place| place.region);
        by_op.or(self.argument_of[index(value)])
    }

    /// Readers through index changes only, which are always folded.
    fn effective_users(&self, value: Value) -> Vec<(OpId, Value)> {
        let mut all = Vec::new();
        for &user in self.users(value) {
            match self.kernel.op(user).results.as_slice() {
                &[result] if self.is_free(user) => all.extend(self.effective_users(result)),
                _ => all.push((user, value)),
            }
        }
        all.sort_unstable_by_key(|(user, _)| *user);
        all.dedup_by_key(|(user, _)| *user);
        all
    }

    /// Whether computing the op anew for each user costs next to nothing.
    fn is_free(&self, id: OpId) -> bool {
        let op = self.kernel.op(id);
        let Some(&result) = op.results.first() else { return false };
        if self.kernel.ty(result).shape.is_empty() {
            return false;
        }
        match op.kind {
            OpKind::Iota(_) | OpKind::Broadcast | OpKind::Reshape | OpKind::Slice { .. } => true,
            // The right operand of a dot has its columns next to each other: transposed once, where
            // the author wrote it.
            OpKind::Transpose => !self.users(result).iter().any(|&user| {
                let user = self.kernel.op(user);
                user.kind == OpKind::Dot && user.operands[1] == result
            }),
            OpKind::Load(param) | OpKind::LoadUntil(param) | OpKind::LoadRows(param) => {
                self.is_read_only(param)
            }
            _ => false,
        }
    }

    fn is_read_only(&self, param: usize) -> bool {
        let kind = &self.kernel.params[param].kind;
        matches!(kind, ParamKind::View { access: Access::Read, .. })
    }

    fn folds(&self, value: Value) -> bool {
        let Some((id, op)) = self.def(value) else { return false };
        let ty = self.kernel.ty(value);
        if ty.shape.is_empty() || matches!(ty.elem, Elem::Packed(_)) {
            return false;
        }
        if self.is_free(id) {
            return true;
        }
        let reads_memory = match op.kind {
            OpKind::Load(param)
            | OpKind::LoadUntil(param)
            | OpKind::LoadRows(param)
            | OpKind::Gather(param) => Some(param),
            _ if is_elementwise(self.kernel, op) => None,
            _ => return false,
        };
        let users = self.effective_users(value);
        let [(user, _)] = users.as_slice() else { return false };
        let (Some(here), Some(there)) = (self.place(id), self.place(*user)) else { return false };
        if here.region != there.region || !self.users(value).iter().all(|&u| self.takes(u, value)) {
            return false;
        }
        match reads_memory {
            Some(param) => self.is_read_only(param) || !self.is_written(param, here, there),
            None => true,
        }
    }

    /// Whether some op between two places may write to the array.
    fn is_written(&self, param: usize, from: Place, to: Place) -> bool {
        let between = |place: &Option<Place>| {
            place.is_some_and(|p| p.region == from.region && from.at < p.at && p.at < to.at)
        };
        let ops = self.kernel.ops.iter().zip(&self.place).filter(|(_, place)| between(place));
        ops.map(|(op, _)| op).any(|op| self.writes(op, param))
    }

    fn writes(&self, op: &Op, param: usize) -> bool {
        match op.kind {
            OpKind::Store(to)
            | OpKind::StoreUntil(to)
            | OpKind::StoreRows(to)
            | OpKind::Scatter(to)
            | OpKind::Atomic(to, _) => to == param,
            _ => op
                .regions
                .iter()
                .flat_map(|region| &region.ops)
                .any(|&inner| self.writes(self.kernel.op(inner), param)),
        }
    }

    /// Whether `user` can compute its operand `value` inside its own loop.
    fn takes(&self, user: OpId, value: Value) -> bool {
        let op = self.kernel.op(user);
        let place = op.operands.iter().position(|&operand| operand == value).unwrap_or(0);
        let last = op.operands.len() - 1;
        let pure = || self.is_plain(value);
        match op.kind {
            OpKind::Broadcast => {
                let from = self.kernel.ty(value).rows_cols();
                let to = self.kernel.ty(op.results[0]).rows_cols();
                let repeats_rows = from[0] < to[0];
                // A row that is repeated is computed once, unless that is only index arithmetic.
                pure() && (!repeats_rows || self.is_index_arithmetic(value))
            }
            OpKind::Reshape | OpKind::Transpose | OpKind::Slice { .. } => pure(),
            OpKind::Store(_) | OpKind::StoreUntil(_) => place == last,
            OpKind::Scatter(_) => pure(),
            OpKind::StoreRows(_) => place != 1,
            OpKind::LoadRows(_) | OpKind::Gather(_) => true,
            OpKind::Reduce { .. } => Class::of(self.kernel.ty(value).elem) == Class::F32 || pure(),
            OpKind::ArgMax(_) | OpKind::Scan { .. } => pure(),
            OpKind::Concat(_) | OpKind::Assert(_) | OpKind::Yield | OpKind::For { .. } => true,
            OpKind::Dot | OpKind::DotScaled => place == 2,
            _ if is_elementwise(self.kernel, op) => {
                let wide = |value: Value| !Class::of(self.kernel.ty(value).elem).in_lanes();
                let in_scalars = wide(op.results[0]) || op.operands.iter().any(|&v| wide(v));
                !in_scalars || pure()
            }
            _ => false,
        }
    }

    /// Whether one element can be computed without lanes.
    fn is_plain(&self, value: Value) -> bool {
        let Some((_, op)) = self.def(value) else { return true };
        let here = match op.kind {
            OpKind::Unary(unary) => !needs_lanes(unary),
            OpKind::Decode | OpKind::Encode(_) => false,
            _ => true,
        };
        here && op.operands.iter().all(|&v| !self.is_folded(v) || self.is_plain(v))
    }

    fn is_index_arithmetic(&self, value: Value) -> bool {
        let Some((_, op)) = self.def(value) else { return false };
        let integer = |v: Value| {
            let elem = self.kernel.ty(v).elem;
            elem.is_int() || elem == Elem::Bool
        };
        let reads =
            matches!(op.kind, OpKind::Gather(_) | OpKind::Reduce { .. } | OpKind::Scan { .. });
        !reads && integer(value) && op.operands.iter().all(|&v| integer(v))
    }
}

/// Index of a value in the arena.
pub(crate) fn index(value: Value) -> usize {
    value.0 as usize
}

/// Whether each element of the result needs one element of each operand.
pub(crate) fn is_elementwise(kernel: &Kernel, op: &Op) -> bool {
    match op.kind {
        OpKind::Unary(_)
        | OpKind::Binary(_)
        | OpKind::Cmp(_)
        | OpKind::Select
        | OpKind::Fma
        | OpKind::Cast(_)
        | OpKind::Bitcast(_)
        | OpKind::Encode(_) => true,
        OpKind::Decode => !matches!(kernel.ty(op.operands[0]).elem, Elem::Packed(_)),
        _ => false,
    }
}

/// Whether the op has polynomials on lanes, so that a scalar goes through them too.
pub(crate) fn needs_lanes(unary: Unary) -> bool {
    matches!(
        unary,
        Unary::Exp
            | Unary::Exp2
            | Unary::Ln
            | Unary::Log2
            | Unary::Sin
            | Unary::Cos
            | Unary::Rsqrt
            | Unary::Recip
    )
}
