//! Loads and stores of views, which are bounded: what lies outside reads as zeros and is not
//! written.
//!
//! A tile whose columns all lie inside, in rows that are aligned, is accessed in runs of up to 16
//! bytes; any other tile element by element. Which of the two is decided when the kernel runs, for
//! all threads alike.

use super::convert::Place;
use super::operand::MATRIX_ROW;
use super::{Held, Lower, Made};
use crate::code::{Buffer, Class, Effect, Node, Operand, Reg, Share};
use crate::infer::{element_bits, is_read_only};
use crate::layout::{Axis, Layout};
use tessera_tile_ir::op::{Atomic, OpKind};
use tessera_tile_ir::{Elem, Op, ParamKind, Value};

/// Bytes of the largest access.
const ACCESS_BYTES: usize = 16;
/// Registers that a tile takes at once on its way to shared memory.
const STAGED_REGS: usize = 32;

/// Rows of a view that elements of a tile lie in.
pub(crate) struct Rows {
    /// For each register, the address of column 0 of its row.
    pub(crate) address: Vec<Reg>,
    /// For each register, whether its row lies inside; none where all do.
    pub(crate) inside: Vec<Option<Reg>>,
}

/// Rows of a view, and which of their columns a tile takes.
pub(crate) struct Window {
    pub(crate) rows: Rows,
    /// First column of the tile, and how many the view has.
    pub(crate) col: Reg,
    pub(crate) extent: Reg,
    /// What must be aligned for rows to be.
    pub(crate) aligned: Vec<Reg>,
}

/// Columns of a view that a tile takes.
struct Cols {
    /// The thread's first column.
    first: Reg,
    extent: Reg,
    /// Whether all columns lie inside and rows are aligned for whole runs.
    whole: Reg,
}

/// Which way elements go.
#[derive(Clone, Copy)]
enum Way<'a> {
    Load,
    /// Elements one a register, and side by side.
    Store {
        single: &'a [Reg],
        packed: &'a [Reg],
        first_copy: Option<Reg>,
        writer: u32,
    },
}

/// A tile of a view.
struct Access<'a> {
    param: usize,
    elem: Elem,
    layout: &'a Layout,
    rows: Rows,
    cols: Cols,
    /// Whose elements are, if their index alone decides it.
    rule: Option<usize>,
}

impl Lower<'_> {
    /// Number of elements along an axis of a view.
    pub(crate) fn extent(&mut self, param: usize, axis: usize) -> Reg {
        let ParamKind::View { dims, .. } = &self.kernel.params[param].kind else {
            unreachable!("the verifier checked the parameter")
        };
        let extent = &dims[axis];
        let dims: Vec<Reg> = extent.dims.iter().map(|dim| self.dim(*dim)).collect();
        #[expect(clippy::cast_possible_wrap, reason = "an extent is below 2^63")]
        let constant = extent.constant as i64;
        match dims.as_slice() {
            [dim] if constant == 0 => *dim,
            [] => self.before(|code| code.op(Class::B64, "mov.b64", [constant.into()])),
            [first, rest @ ..] => {
                let rest: Vec<Operand> =
                    rest.iter().map(|dim| (*dim).into()).chain([constant.into()]).collect();
                let mut sum = *first;
                for part in rest {
                    sum = self.before(|code| code.op(Class::B64, "add.s64", [sum.into(), part]));
                }
                sum
            }
        }
    }

    fn rank(&self, param: usize) -> usize {
        match &self.kernel.params[param].kind {
            ParamKind::View { dims, .. } => dims.len(),
            ParamKind::Scalar(_) => 0,
        }
    }

    /// Elements from an index along an axis to the next, `None` for one.
    fn stride(&mut self, param: usize, axis: usize) -> Option<Reg> {
        let word = self.param_words[param] + 1 + axis;
        (axis + 1 < self.rank(param)).then(|| self.argument(word))
    }

    /// The extent of an axis, less what an early end cuts off.
    fn bound(&mut self, param: usize, axis: usize, end: Option<Value>) -> Reg {
        let extent = self.extent(param, axis);
        let Some(end) = end.filter(|_| axis == 0) else { return extent };
        let end = self.scalar(end);
        let end = self.code.op(Class::B64, "max.s64", [end.into(), 0.into()]);
        self.code.op(Class::B64, "min.s64", [end.into(), extent.into()])
    }

    /// Address and validity of what leading indices choose.
    fn leading(
        &mut self,
        param: usize,
        at: &[Value],
        end: Option<Value>,
        bytes: usize,
    ) -> (Reg, Option<Reg>) {
        let mut address = self.argument(self.param_words[param]);
        let mut inside = None;
        for (axis, index) in at.iter().enumerate() {
            let index = self.scalar(*index);
            let extent = self.bound(param, axis, end);
            let here = self.inside(index, extent.into());
            inside = self.both_of(inside, Some(here));
            let step = self.step_bytes(param, axis, bytes);
            address = self.mad(index.into(), step, address.into());
        }
        (address, inside)
    }

    /// Bytes from an index along an axis to the next.
    fn step_bytes(&mut self, param: usize, axis: usize, bytes: usize) -> Operand {
        #[expect(clippy::cast_possible_wrap, reason = "bytes of an element")]
        let bytes = bytes as i64;
        match self.stride(param, axis) {
            None => bytes.into(),
            Some(stride) => {
                let sources = [stride.into(), bytes.into()];
                self.before(|code| code.op(Class::B64, "mul.lo.s64", sources)).into()
            }
        }
    }

    /// A load op in a layout.
    pub(crate) fn load(&mut self, op: &Op, layout: &Layout) -> Vec<Reg> {
        self.load_part(op, layout, 0)
    }

    /// A load op into shared memory, a few registers at a time.
    pub(crate) fn load_to_shared(&mut self, op: &Op, layout: &Layout) {
        let result = op.results[0];
        let elem = self.elem(result);
        let place = self.stage(elem, self.shape(result), MATRIX_ROW);
        let (mut some, mut rest) = (layout.clone(), Vec::new());
        while some.num_regs() / Self::pack(elem, &some) > STAGED_REGS {
            rest.extend(some.regs.pop());
        }
        for turn in 0..1 << rest.len() {
            let part = rest.iter().enumerate().map(|(i, step)| (turn >> i & 1) * step).sum();
            let regs = self.load_part(op, &some, part);
            self.write_shared(elem, &Held { layout: some.clone(), regs }, place, part);
        }
        self.keep_staged(result, place);
    }

    /// Remembers until the region ends that a tile lies in shared memory.
    pub(crate) fn keep_staged(&mut self, value: Value, place: Place) {
        self.staged.insert(value, place);
        self.made.last_mut().expect("a region is open").push(Made::Staged(value));
    }

    /// The elements of a load op that a layout says, `part` further in the tile's order.
    pub(crate) fn load_part(&mut self, op: &Op, layout: &Layout, part: usize) -> Vec<Reg> {
        let elem = self.elem(op.results[0]);
        let from = [part / layout.cols, part % layout.cols];
        match op.kind {
            OpKind::LoadRows(param) => {
                let access = self.rows_access(op, (param, elem), layout, from);
                self.tile(&access, Way::Load)
            }
            OpKind::Gather(param) => self.gather(op, param, layout),
            _ => match self.window_access(op, elem, layout, from) {
                Some(access) => self.tile(&access, Way::Load),
                None => {
                    let reg = self.load_one(op, elem);
                    vec![reg; layout.num_regs()]
                }
            },
        }
    }

    /// A store op.
    pub(crate) fn store(&mut self, op: &Op, writer: u32) {
        let (value, _) = op.operands.split_last().expect("a store has a tile");
        let held = self.natural(*value);
        let elem = self.elem(*value);
        let single = self.unpacked(elem, &held);
        let first_copy = self.first_copy(&held.layout);
        let way = Way::Store { single: &single, packed: &held.regs, first_copy, writer };
        match op.kind {
            OpKind::StoreRows(param) => {
                let access = self.rows_access(op, (param, elem), &held.layout, [0, 0]);
                self.tile(&access, way);
            }
            OpKind::Scatter(param) => self.scatter(op, (param, writer), &held, first_copy),
            _ => match self.window_access(op, elem, &held.layout, [0, 0]) {
                Some(access) => {
                    self.tile(&access, way);
                }
                None => self.store_one(op, (elem, writer), single[0]),
            },
        }
    }

    /// The window of a tile of rank 1 or 2.
    fn window_access<'a>(
        &mut self,
        op: &Op,
        elem: Elem,
        layout: &'a Layout,
        from: [usize; 2],
    ) -> Option<Access<'a>> {
        let bytes = element_bits(elem) / 8;
        let found = self.window_rows(op, bytes, layout, from[0])?;
        let cols = self.cols((found.col, found.extent), from[1], (layout, bytes), &found.aligned);
        let param = op.window().expect("asked of windows only").param;
        let rule = self.rule(op, (param, layout));
        Some(Access { param, elem, layout, rows: found.rows, cols, rule })
    }

    /// The rows of a window of a tile of rank 1 or 2, of elements of so many bytes, in the threads of
    /// a layout that begins `from` rows into it.
    pub(crate) fn window_rows(
        &mut self,
        op: &Op,
        bytes: usize,
        layout: &Layout,
        from: usize,
    ) -> Option<Window> {
        let window = op.window().expect("asked of windows only");
        let tile_rank = self.tile_rank(op);
        if tile_rank == 0 {
            return None;
        }
        let (param, rank) = (window.param, window.at.len());
        let (address, inside) =
            self.leading(param, &window.at[..rank - tile_rank], window.end, bytes);
        let col = self.scalar(window.at[rank - 1]);
        let extent = self.bound(param, rank - 1, window.end);
        let mut rows = Rows {
            address: vec![address; layout.num_regs()],
            inside: vec![inside; layout.num_regs()],
        };
        let mut aligned = vec![address];
        if tile_rank == 2 {
            let (axis, start) = (rank - 2, self.scalar(window.at[rank - 2]));
            let bound = self.bound(param, axis, window.end);
            let step = self.step_bytes(param, axis, bytes);
            if let Operand::Reg(step) = step {
                aligned.push(step);
            }
            let part = self.thread_part(layout, Some(Axis::Rows));
            let first = self.add_part(start, part);
            let mut known: Vec<(usize, Reg, Option<Reg>)> = Vec::new();
            for reg in 0..layout.num_regs() {
                let row = layout.reg_place(reg)[0] + from;
                if !known.iter().any(|(known, ..)| *known == row) {
                    #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
                    let at = self.add_index(Some(first), row as i64);
                    let here = self.inside(at, bound.into());
                    let here = self.both_of(inside, Some(here));
                    let address = self.mad(at.into(), step.clone(), address.into());
                    known.push((row, address, here));
                }
                let found = known.iter().find(|(known, ..)| *known == row);
                let (_, address, here) = found.expect("was just added");
                (rows.address[reg], rows.inside[reg]) = (*address, *here);
            }
        }
        Some(Window { rows, col, extent, aligned })
    }

    /// Axes of the tile that a load or store moves.
    fn tile_rank(&self, op: &Op) -> usize {
        let value = op.results.first().or(op.operands.last()).expect("a load or a store");
        self.kernel.ty(*value).shape.len()
    }

    /// The rule by which threads share a view, if the window of an op starts at multiples of its
    /// extents and no two threads hold copies: then windows of this layout give an element to the
    /// same thread wherever they start.
    fn rule(&mut self, op: &Op, (param, layout): (usize, &Layout)) -> Option<usize> {
        let at = op.window().expect("asked of windows only").at;
        let tile_rank = self.tile_rank(op);
        let extents = [layout.rows, layout.cols];
        let starts = at[at.len() - tile_rank..].iter().rev().zip(extents.iter().rev());
        let aligned =
            starts.clone().all(|(start, extent)| self.multiple_of(*start).is_multiple_of(*extent));
        if !aligned || layout.copy_bits() != (0, 0) {
            return None;
        }
        let key = (param, layout.clone());
        let known = self.rules.iter().position(|rule| *rule == key);
        Some(known.unwrap_or_else(|| {
            self.rules.push(key);
            self.rules.len() - 1
        }))
    }

    /// Rows given one by one.
    fn rows_access<'a>(
        &mut self,
        op: &Op,
        (param, elem): (usize, Elem),
        layout: &'a Layout,
        from: [usize; 2],
    ) -> Access<'a> {
        let bytes = element_bits(elem) / 8;
        let found = self.given_rows(op, (param, bytes), layout, from[0]);
        let cols = self.cols((found.col, found.extent), from[1], (layout, bytes), &found.aligned);
        Access { param, elem, layout, rows: found.rows, cols, rule: None }
    }

    /// Rows given one by one, as those of [`Lower::window_rows`].
    pub(crate) fn given_rows(
        &mut self,
        op: &Op,
        (param, bytes): (usize, usize),
        layout: &Layout,
        from: usize,
    ) -> Window {
        let base = self.argument(self.param_words[param]);
        let step = self.step_bytes(param, 0, bytes);
        let bound = self.extent(param, 0);
        let vector = layout.without(Axis::Cols).reshaped([1, layout.rows]);
        let indices = self.row_indices(op.operands[0], &vector, from);
        let mut known: Vec<(Reg, Reg, Reg)> = Vec::new();
        let (mut address, mut inside) = (Vec::new(), Vec::new());
        for index in indices {
            if !known.iter().any(|(known, ..)| *known == index) {
                let here = self.inside(index, bound.into());
                let row = self.mad(index.into(), step.clone(), base.into());
                known.push((index, row, here));
            }
            let found = known.iter().find(|(known, ..)| *known == index);
            let (_, row, here) = found.expect("was just added");
            address.push(*row);
            inside.push(Some(*here));
        }
        let col = self.scalar(op.operands[1]);
        let extent = self.extent(param, 1);
        let mut aligned = vec![base];
        if let Operand::Reg(step) = step {
            aligned.push(step);
        }
        Window { rows: Rows { address, inside }, col, extent, aligned }
    }

    /// Indices of the rows of a layout that begins `from` rows into the tile.
    fn row_indices(&mut self, rows: Value, vector: &Layout, from: usize) -> Vec<Reg> {
        if from == 0 {
            return self.get(rows, vector).regs;
        }
        // The whole column in the threads of the layout, of which some registers are wanted.
        let mut all = vector.compact();
        let missing = crate::layout::bits(vector.cols).into_iter().filter(|bit| {
            !all.regs.contains(bit) && !all.lanes.contains(bit) && !all.warps.contains(bit)
        });
        let missing: Vec<usize> = missing.collect();
        all.regs.extend(missing);
        let held = self.get(rows, &all);
        let parts: Vec<usize> = (0..all.num_regs()).map(|reg| all.reg_part(reg)).collect();
        (0..vector.num_regs())
            .map(|reg| {
                let part = vector.reg_part(reg) + from;
                held.regs[parts.iter().position(|known| *known == part).expect("it is held")]
            })
            .collect()
    }

    /// `start` and the thread's part of an index.
    pub(crate) fn add_part(&mut self, start: Reg, part: Option<Reg>) -> Reg {
        let Some(part) = part else { return start };
        let wide = self.code.op(Class::B64, "cvt.u64.u32", [part.into()]);
        self.add(start.into(), wide.into())
    }

    fn cols(
        &mut self,
        (start, extent): (Reg, Reg),
        from: usize,
        (layout, bytes): (&Layout, usize),
        aligned: &[Reg],
    ) -> Cols {
        let part = self.thread_part(layout, Some(Axis::Cols));
        #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
        let (mask, count, bytes, from) = (
            (run(layout, bytes) * bytes) as i64 - 1,
            layout.cols as i64,
            bytes as i64,
            from as i64,
        );
        let first = self.add_part(start, part);
        let first = self.add_index(Some(first), from);
        let end = self.add(start.into(), count.into());
        let not_before = self.code.op(Class::Pred, "setp.ge.s64", [start.into(), 0.into()]);
        let not_past = self.code.op(Class::Pred, "setp.le.s64", [end.into(), extent.into()]);
        let mut whole = self.both(not_before, not_past);
        if mask > 0 {
            let mut all = self.code.op(Class::B64, "mul.lo.s64", [start.into(), bytes.into()]);
            for part in aligned {
                all = self.code.op(Class::B64, "or.b64", [all.into(), (*part).into()]);
            }
            let low = self.code.op(Class::B64, "and.b64", [all.into(), mask.into()]);
            let fits = self.code.op(Class::Pred, "setp.eq.u64", [low.into(), 0.into()]);
            whole = self.both(whole, fits);
        }
        Cols { first, extent, whole }
    }

    /// Loads or stores a tile; the registers of a load.
    fn tile(&mut self, access: &Access<'_>, way: Way<'_>) -> Vec<Reg> {
        let pack = Self::pack(access.elem, access.layout);
        let class = Self::class(access.elem);
        let results = match way {
            Way::Load => {
                let regs = self.code.regs(class, access.layout.num_regs() / pack);
                regs.iter().for_each(|reg| self.code.set(*reg, 0.into()));
                regs
            }
            Way::Store { .. } => Vec::new(),
        };
        self.code.begin();
        self.runs(access, way, &results);
        let yes = self.code.close();
        self.code.begin();
        self.single_elements(access, way, &results);
        let no = self.code.close();
        self.code.node(Node::If { condition: access.cols.whole, yes, no, together: false });
        results
    }

    /// Whole runs of columns that lie inside.
    fn runs(&mut self, access: &Access<'_>, way: Way<'_>, results: &[Reg]) {
        let (layout, elem) = (access.layout, access.elem);
        let bytes = element_bits(elem) / 8;
        let run = run(layout, bytes);
        let pack = Self::pack(elem, layout);
        let mut known: Vec<(Reg, Reg)> = Vec::new();
        for first in (0..layout.num_regs()).step_by(run) {
            let row = access.rows.address[first];
            if !known.iter().any(|(known, _)| *known == row) {
                #[expect(clippy::cast_possible_wrap, reason = "bytes of an element")]
                let step = bytes as i64;
                let address = self.mad(access.cols.first.into(), step.into(), row.into());
                known.push((row, address));
            }
            let address = known.iter().find(|(known, _)| *known == row).expect("just added").1;
            let place = Operand::at(address, layout.reg_place(first)[1] * bytes);
            let regs = match way {
                Way::Load => &results[first / pack..(first + run).div_ceil(pack)],
                Way::Store { packed, .. } => &packed[first / pack..(first + run).div_ceil(pack)],
            };
            self.access_regs(access, way, (place, regs, run * bytes), access.rows.inside[first]);
        }
    }

    /// One element at a time, each checked.
    fn single_elements(&mut self, access: &Access<'_>, way: Way<'_>, results: &[Reg]) {
        let (layout, elem) = (access.layout, access.elem);
        let bytes = element_bits(elem) / 8;
        let pack = Self::pack(elem, layout);
        let mut codes = Vec::new();
        for reg in 0..layout.num_regs() {
            let [_, col] = layout.reg_place(reg);
            #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
            let (at, step) = (self.add_index(Some(access.cols.first), col as i64), bytes as i64);
            let here = self.inside(at, access.cols.extent.into());
            let here = self.both_of(access.rows.inside[reg], Some(here));
            let row = access.rows.address[reg];
            let address = self.mad(at.into(), step.into(), row.into());
            let target = match way {
                Way::Load if pack == 1 => results[reg],
                Way::Load => {
                    let code = self.code.reg(Class::B32);
                    self.code.set(code, 0.into());
                    codes.push(code);
                    code
                }
                Way::Store { single, .. } => single[reg],
            };
            self.access_regs(access, way, (Operand::at(address, 0), &[target], bytes), here);
        }
        for (result, codes) in results.iter().zip(self.packed(elem, &codes, pack)) {
            if pack > 1 {
                self.code.set(*result, codes.into());
            }
        }
    }

    /// One access of `bytes` bytes, where `inside` holds.
    fn access_regs(
        &mut self,
        access: &Access<'_>,
        way: Way<'_>,
        (place, regs, bytes): (Operand, &[Reg], usize),
        inside: Option<Reg>,
    ) {
        let width = bytes * 8 / regs.len();
        let (values, vector) = Operand::moved(regs);
        let read_only = is_read_only(self.kernel, access.param);
        let view = Buffer::View(access.param);
        match way {
            Way::Load => {
                let cached = if read_only { ".nc" } else { "" };
                let share = access.rule.map_or(Share::Unknown, Share::Rule);
                let effect = if read_only { Effect::None } else { Effect::Read(view, share) };
                let op = format!("ld.global{cached}{vector}.u{width}");
                self.code.push_with(op, vec![values, place], inside.map(Into::into), effect);
            }
            Way::Store { first_copy, writer, .. } => {
                let guard = self.both_of(inside, first_copy);
                let op = format!("st.global{vector}.u{width}");
                let share = access.rule.map_or(Share::Op(writer), Share::Rule);
                let effect = Effect::Write(view, share);
                self.code.push_with(op, vec![place, values], guard.map(Into::into), effect);
            }
        }
    }

    /// Address and validity of a single element.
    fn one(&mut self, op: &Op, elem: Elem) -> (usize, Operand, Option<Reg>) {
        let window = op.window().expect("asked of windows only");
        let bytes = element_bits(elem) / 8;
        let (address, inside) = self.leading(window.param, window.at, window.end, bytes);
        (window.param, Operand::at(address, 0), inside)
    }

    fn load_one(&mut self, op: &Op, elem: Elem) -> Reg {
        let (param, place, inside) = self.one(op, elem);
        let result = self.code.reg(Self::class(elem));
        self.code.set(result, 0.into());
        self.load_element((param, elem), result, place, inside);
        result
    }

    fn load_element(
        &mut self,
        (param, elem): (usize, Elem),
        result: Reg,
        place: Operand,
        inside: Option<Reg>,
    ) {
        let read_only = is_read_only(self.kernel, param);
        let cached = if read_only { ".nc" } else { "" };
        let effect = if read_only {
            Effect::None
        } else {
            Effect::Read(Buffer::View(param), Share::Unknown)
        };
        let op = format!("ld.global{cached}.u{}", element_bits(elem));
        self.code.push_with(op, vec![result.into(), place], inside.map(Into::into), effect);
    }

    fn store_one(&mut self, op: &Op, (elem, writer): (Elem, u32), value: Reg) {
        let (param, place, inside) = self.one(op, elem);
        let first = self.first_thread();
        let guard = self.both_of(inside, Some(first));
        let op = format!("st.global.u{}", element_bits(elem));
        let effect = Effect::Write(Buffer::View(param), Share::Op(writer));
        self.code.push_with(op, vec![place, value.into()], guard.map(Into::into), effect);
    }

    /// Holds in one thread of the program.
    pub(crate) fn first_thread(&mut self) -> Reg {
        let thread = self.thread();
        self.before(|code| code.op(Class::Pred, "setp.eq.u32", [thread.into(), 0.into()]))
    }

    /// Address and validity of an element whose indices are given one by one.
    fn element_place(&mut self, param: usize, at: &[Reg], bytes: usize) -> (Operand, Reg) {
        let mut address = self.argument(self.param_words[param]);
        let mut inside: Option<Reg> = None;
        for (axis, index) in at.iter().enumerate() {
            let extent = self.extent(param, axis);
            let here = self.inside(*index, extent.into());
            inside = self.both_of(inside, Some(here));
            let step = self.step_bytes(param, axis, bytes);
            address = self.mad((*index).into(), step, address.into());
        }
        (Operand::at(address, 0), inside.expect("a view has an axis"))
    }

    fn gather(&mut self, op: &Op, param: usize, layout: &Layout) -> Vec<Reg> {
        let elem = self.elem(op.results[0]);
        let indices: Vec<Held> =
            op.operands.iter().map(|operand| self.get(*operand, layout)).collect();
        let single: Vec<Reg> = (0..layout.num_regs())
            .map(|reg| {
                let at: Vec<Reg> = indices.iter().map(|held| held.regs[reg]).collect();
                let (place, inside) = self.element_place(param, &at, element_bits(elem) / 8);
                let result = self.code.reg(Self::class(elem));
                self.code.set(result, 0.into());
                self.load_element((param, elem), result, place, Some(inside));
                result
            })
            .collect();
        self.packed(elem, &single, Self::pack(elem, layout))
    }

    fn scatter(
        &mut self,
        op: &Op,
        (param, writer): (usize, u32),
        held: &Held,
        first_copy: Option<Reg>,
    ) {
        let (value, indices) = op.operands.split_last().expect("a scatter has a tile");
        let elem = self.elem(*value);
        let indices: Vec<Held> =
            indices.iter().map(|operand| self.get(*operand, &held.layout)).collect();
        let single = self.unpacked(elem, held);
        for (reg, value) in single.into_iter().enumerate() {
            let at: Vec<Reg> = indices.iter().map(|held| held.regs[reg]).collect();
            let (place, inside) = self.element_place(param, &at, element_bits(elem) / 8);
            let guard = self.both_of(Some(inside), first_copy);
            let op = format!("st.global.u{}", element_bits(elem));
            let effect = Effect::Write(Buffer::View(param), Share::Op(writer));
            self.code.push_with(op, vec![place, value.into()], guard.map(Into::into), effect);
        }
    }

    /// An atomic op: one thread does it.
    pub(crate) fn atomic(&mut self, op: &Op, (param, how): (usize, Atomic), writer: u32) {
        let (value, at) = op.operands.split_last().expect("an atomic has a value");
        let elem = self.elem(*value);
        let value = self.scalar(*value);
        let at: Vec<Reg> = at.iter().map(|index| self.scalar(*index)).collect();
        let (place, inside) = self.element_place(param, &at, element_bits(elem) / 8);
        let first = self.first_thread();
        let guard = self.both(inside, first);
        let ty = match (how, elem) {
            (Atomic::Or, Elem::I64 | Elem::U64) => "b64",
            (Atomic::Or, _) => "b32",
            // Two's complement adds alike; there is no signed form of 64 bits.
            (Atomic::Add, Elem::I64 | Elem::U64) => "u64",
            _ => super::elementwise::signed(elem),
        };
        let name = match how {
            Atomic::Add => "add",
            Atomic::Min => "min",
            Atomic::Max => "max",
            Atomic::Or => "or",
        };
        let op = format!("red.global.{name}.{ty}");
        let effect = Effect::Write(Buffer::View(param), Share::Op(writer));
        self.code.push_with(op, vec![place, value.into()], Some(guard.into()), effect);
    }
}

/// Elements of one access.
fn run(layout: &Layout, bytes: usize) -> usize {
    layout.run().min(ACCESS_BYTES / bytes)
}
