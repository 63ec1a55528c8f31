//! Windows of packed views: codes, and the scales and zero points that belong to them.
//!
//! Nothing is loaded where the window is taken: whoever decodes or multiplies it loads what it needs
//! in the layout it needs.

use super::ring::RingWindow;
use super::{Held, Lower};
use crate::code::{Class, Node, Operand, Reg};
use crate::layout::{Axis, Layout};
use tessera_tile_ir::format::{Format, ScaleTile, ScaleType, WHOLE};
use tessera_tile_ir::op::{Binary, Literal, OpKind};
use tessera_tile_ir::{Elem, Op, Value};

/// A window of a packed view, as registers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PackedWindow {
    pub(crate) format: &'static Format,
    /// First word of the view's arguments.
    pub(crate) words: usize,
    /// Index of the matrix, if there are several, and whether it exists.
    pub(crate) matrix: Option<(Reg, Reg)>,
    /// First row and column of the window.
    pub(crate) row: Reg,
    pub(crate) col: Reg,
    /// Rows and columns of a matrix.
    pub(crate) rows: Reg,
    pub(crate) cols: Reg,
    /// What the first column is known to be a multiple of.
    pub(crate) col_multiple: usize,
    /// Where it lies in shared memory, if a loop brought it there.
    pub(crate) ring: Option<RingWindow>,
}

/// A scale and a zero point, where the format has them.
type ScaleAt = (Option<Reg>, Option<Reg>);

/// Bits of the largest access.
const ACCESS_BITS: usize = 128;

impl Lower<'_> {
    /// The window behind a packed value.
    pub(crate) fn packed_window(&mut self, value: Value) -> Option<PackedWindow> {
        let op = self.op_of(value)?;
        let Elem::Packed(format) = self.elem(value) else { return None };
        let OpKind::Load(param) = op.kind else { return None };
        let rank = op.operands.len();
        let matrix = (rank == 3).then(|| {
            let index = self.scalar(op.operands[0]);
            let extent = self.extent(param, 0);
            let inside = self.inside(index, extent.into());
            (index, inside)
        });
        let (row, col) = (op.operands[rank - 2], op.operands[rank - 1]);
        Some(PackedWindow {
            format,
            words: self.param_words[param],
            matrix,
            row: self.scalar(row),
            col: self.scalar(col),
            rows: self.extent(param, rank - 2),
            cols: self.extent(param, rank - 1),
            col_multiple: self.multiple_of(col),
            ring: self.windows.get(&value).copied(),
        })
    }

    /// What an index is certainly a multiple of.
    pub(crate) fn multiple_of(&self, value: Value) -> usize {
        const MOST: usize = 1 << 20;
        if let Some(op) = self.op_of(value) {
            let of = |i: usize| self.multiple_of(op.operands[i]);
            return match &op.kind {
                OpKind::Const(Literal::Int(0)) => MOST,
                OpKind::Const(Literal::Int(number)) => {
                    usize::try_from(number.unsigned_abs()).unwrap_or(1)
                }
                OpKind::Binary(Binary::Mul) => of(0).saturating_mul(of(1)).min(MOST),
                OpKind::Binary(Binary::Add | Binary::Sub) => gcd(of(0), of(1)),
                OpKind::Reshape => of(0),
                _ => 1,
            };
        }
        let counts = |op: &&Op| op.regions.iter().any(|region| region.args.first() == Some(&value));
        match self.kernel.ops.iter().find(counts) {
            Some(Op { kind: OpKind::For { step }, operands, .. }) => {
                gcd(self.multiple_of(operands[0]), *step)
            }
            _ => 1,
        }
    }

    /// Codes of a packed value in a layout; what lies outside has code 0.
    pub(crate) fn packed_codes(&mut self, value: Value, layout: &Layout) -> Held {
        let Some(window) = self.packed_window(value) else {
            self.refuse("K034", "only windows of packed views are decoded here".to_owned());
            let count = layout.num_regs() / Self::pack(self.elem(value), layout);
            return Held { layout: layout.clone(), regs: self.code.regs(Class::B32, count) };
        };
        self.window_codes(&window, layout)
    }

    /// The window that begins so many rows and columns later.
    pub(crate) fn shifted(
        &mut self,
        window: &PackedWindow,
        [rows, cols]: [usize; 2],
    ) -> PackedWindow {
        if let Some(ring) = window.ring {
            let skipped = [ring.skipped[0] + rows, ring.skipped[1] + cols];
            return PackedWindow { ring: Some(RingWindow { skipped, ..ring }), ..*window };
        }
        #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
        let [down, across] = [rows as i64, cols as i64];
        PackedWindow {
            row: self.add_index(Some(window.row), down),
            col: self.add_index(Some(window.col), across),
            col_multiple: gcd(window.col_multiple, cols),
            ..*window
        }
    }

    /// Codes of a window in a layout.
    pub(crate) fn window_codes(&mut self, window: &PackedWindow, layout: &Layout) -> Held {
        if let Some(ring) = window.ring {
            let regs = self.ring_codes(window.format, ring, layout);
            return Held { layout: layout.clone(), regs };
        }
        let elem = Elem::Packed(window.format);
        let bits = window.format.element.bits();
        let pack = Self::pack(elem, layout);
        let regs = self.code.regs(Class::B32, layout.num_regs() / pack);
        regs.iter().for_each(|reg| self.code.set(*reg, 0.into()));
        let row_bytes = self.row_bytes(window);
        let rows = self.code_rows(window, layout, row_bytes);
        let col = self.window_col(window, layout, 0);
        let run = layout.run().min(ACCESS_BITS / bits);
        // Runs of codes that fill whole bytes, wherever the window begins.
        let fill = 8 / gcd(8, bits);
        if run.is_multiple_of(fill) && window.col_multiple.is_multiple_of(fill) {
            let run = if 32 % bits == 0 { run } else { fill };
            let whole = self.whole_runs(window, (layout, run), row_bytes);
            self.code.begin();
            self.code_runs((layout, run, bits), (col, &rows), &regs);
            let yes = self.code.close();
            self.code.begin();
            self.code_bytes((layout, bits, pack), (col, window.cols, row_bytes), (&rows, &regs));
            let no = self.code.close();
            self.code.node(Node::If { condition: whole, yes, no, together: false });
        } else {
            self.code_bytes((layout, bits, pack), (col, window.cols, row_bytes), (&rows, &regs));
        }
        Held { layout: layout.clone(), regs }
    }

    /// Bytes of a row of codes.
    pub(crate) fn row_bytes(&mut self, window: &PackedWindow) -> Reg {
        let bits = window.format.element.bits();
        let cols = window.cols;
        #[expect(clippy::cast_possible_wrap, reason = "bits of an element")]
        let bits = bits as i64;
        self.before(|code| {
            let sources = [cols.into(), bits.into(), 7.into()];
            let all = code.op(Class::B64, "mad.lo.s64", sources);
            code.op(Class::B64, "shr.u64", [all.into(), 3.into()])
        })
    }

    /// Number of the window's row that a register lies in, counted from the first matrix, and
    /// whether there is one.
    fn window_row(&mut self, window: &PackedWindow, layout: &Layout, row: usize) -> (Reg, Reg) {
        let part = self.thread_part(layout, Some(Axis::Rows));
        let at = self.add_part(window.row, part);
        #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
        let at = self.add_index(Some(at), row as i64);
        let mut inside = self.inside(at, window.rows.into());
        if let Some((_, exists)) = window.matrix {
            inside = self.both(inside, exists);
        }
        (at, inside)
    }

    /// For each register, the address of its row of codes and whether there is one.
    fn code_rows(
        &mut self,
        window: &PackedWindow,
        layout: &Layout,
        row_bytes: Reg,
    ) -> Vec<(Reg, Reg)> {
        let codes = self.argument(window.words);
        let mut known: Vec<(usize, (Reg, Reg))> = Vec::new();
        (0..layout.num_regs())
            .map(|reg| {
                let row = layout.reg_place(reg)[0];
                if let Some((_, found)) = known.iter().find(|(known, _)| *known == row) {
                    return *found;
                }
                let (at, inside) = self.window_row(window, layout, row);
                let at = match window.matrix {
                    None => at,
                    Some((matrix, _)) => self.mad(matrix.into(), window.rows.into(), at.into()),
                };
                let address = self.mad(at.into(), row_bytes.into(), codes.into());
                known.push((row, (address, inside)));
                (address, inside)
            })
            .collect()
    }

    /// Whether all columns of the window lie inside and its runs are aligned.
    fn whole_runs(
        &mut self,
        window: &PackedWindow,
        (layout, run): (&Layout, usize),
        row_bytes: Reg,
    ) -> Reg {
        let bits = window.format.element.bits();
        #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
        let (count, bits, mask) = (layout.cols as i64, bits as i64, (run * bits / 8) as i64 - 1);
        let end = self.add(window.col.into(), count.into());
        let not_before = self.code.op(Class::Pred, "setp.ge.s64", [window.col.into(), 0.into()]);
        let not_past = self.code.op(Class::Pred, "setp.le.s64", [end.into(), window.cols.into()]);
        let whole = self.both(not_before, not_past);
        if mask <= 0 {
            return whole;
        }
        let codes = self.argument(window.words);
        let bit = self.code.op(Class::B64, "mul.lo.s64", [window.col.into(), bits.into()]);
        let byte = self.code.op(Class::B64, "shr.u64", [bit.into(), 3.into()]);
        let all = self.code.op(Class::B64, "or.b64", [byte.into(), codes.into()]);
        let all = self.code.op(Class::B64, "or.b64", [all.into(), row_bytes.into()]);
        let low = self.code.op(Class::B64, "and.b64", [all.into(), mask.into()]);
        let aligned = self.code.op(Class::Pred, "setp.eq.u64", [low.into(), 0.into()]);
        self.both(whole, aligned)
    }

    fn code_runs(
        &mut self,
        (layout, run, bits): (&Layout, usize, usize),
        (col, rows): (Reg, &[(Reg, Reg)]),
        regs: &[Reg],
    ) {
        let pack = layout.num_regs() / regs.len();
        let bytes = run * bits / 8;
        #[expect(clippy::cast_possible_wrap, reason = "bits of an element")]
        let bit = self.code.op(Class::B64, "mul.lo.s64", [col.into(), (bits as i64).into()]);
        let byte = self.code.op(Class::B64, "shr.u64", [bit.into(), 3.into()]);
        if 32 % bits != 0 {
            return self.odd_runs((layout, run, bits), (byte, rows), regs);
        }
        for first in (0..layout.num_regs()).step_by(run) {
            let (row, inside) = rows[first];
            let address = self.add(row.into(), byte.into());
            let offset = layout.reg_place(first)[1] * bits / 8;
            let group = &regs[first / pack..(first + run).div_ceil(pack)];
            let width = bytes * 8 / group.len();
            let (values, vector) = Operand::moved(group);
            let place = Operand::at(address, offset);
            let op = format!("ld.global.nc{vector}.u{width}");
            let effect = crate::code::Effect::None;
            self.code.push_with(op, vec![values, place], Some(inside.into()), effect);
        }
    }

    /// Runs of codes that do not fill a register evenly, from the few bytes that hold them.
    fn odd_runs(
        &mut self,
        (layout, run, bits): (&Layout, usize, usize),
        (byte, rows): (Reg, &[(Reg, Reg)]),
        regs: &[Reg],
    ) {
        for first in (0..layout.num_regs()).step_by(run) {
            let (row, inside) = rows[first];
            let address = self.add(row.into(), byte.into());
            let offset = layout.reg_place(first)[1] * bits / 8;
            let bytes: Vec<Reg> = (offset..offset + run * bits / 8)
                .map(|offset| self.load_guarded((address, offset), 8, inside))
                .collect();
            let word = self.side_by_side(&bytes, 8);
            for (i, reg) in regs[first..first + run].iter().enumerate() {
                let code = self.field(word, i * bits, bits, run * bits);
                self.code.set(*reg, code.into());
            }
        }
    }

    /// Code by code, from the one or two bytes that hold it.
    fn code_bytes(
        &mut self,
        (layout, bits, pack): (&Layout, usize, usize),
        (col, cols, row_bytes): (Reg, Reg, Reg),
        (rows, regs): (&[(Reg, Reg)], &[Reg]),
    ) {
        #[expect(clippy::cast_possible_wrap, reason = "bits of an element")]
        let (step, mask) = (bits as i64, (1_i64 << bits) - 1);
        let mut single = Vec::new();
        for (reg, (row, row_inside)) in rows.iter().copied().enumerate() {
            #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
            let at = self.add_index(Some(col), layout.reg_place(reg)[1] as i64);
            let inside = self.inside(at, cols.into());
            let inside = self.both(inside, row_inside);
            let bit = self.code.op(Class::B64, "mul.lo.s64", [at.into(), step.into()]);
            let byte = self.code.op(Class::B64, "shr.u64", [bit.into(), 3.into()]);
            let address = self.add(row.into(), byte.into());
            let width = bits.next_power_of_two().max(8);
            let code = self.load_guarded((address, 0), width, inside);
            if bits.is_multiple_of(8) {
                single.push(code);
                continue;
            }
            let mut word = code;
            if 8 % bits != 0 {
                // The code may go on in the next byte, if the row has one.
                let after = self.add(byte.into(), 1.into());
                let there = self.inside(after, row_bytes.into());
                let there = self.both(there, inside);
                let next = self.load_guarded((address, 1), 8, there);
                let sources = [next.into(), code.into(), 8.into(), 8.into()];
                word = self.code.op(Class::B32, "bfi.b32", sources);
            }
            let short = self.code.op(Class::B32, "cvt.u32.u64", [bit.into()]);
            let shift = self.code.op(Class::B32, "and.b32", [short.into(), 7.into()]);
            let moved = self.code.op(Class::B32, "shr.u32", [word.into(), shift.into()]);
            single.push(self.code.op(Class::B32, "and.b32", [moved.into(), mask.into()]));
        }
        for (to, from) in regs.iter().zip(single.chunks(pack)) {
            let word = self.side_by_side(from, bits);
            self.code.set(*to, word.into());
        }
    }

    /// Values of a packed window in a layout, scales applied; zeros outside.
    pub(crate) fn decode_packed(&mut self, value: Value, layout: &Layout) -> Vec<Reg> {
        let held = self.packed_codes(value, layout);
        match self.packed_window(value) {
            Some(window) => self.decode_window(&window, self.elem(value), &held),
            None => held.regs,
        }
    }

    /// Values of the codes of a window, scales applied; zeros outside.
    pub(crate) fn decode_window(
        &mut self,
        window: &PackedWindow,
        elem: Elem,
        held: &Held,
    ) -> Vec<Reg> {
        let layout = &held.layout;
        let single = self.unpacked(elem, held);
        let element = window.format.element;
        // Neighbours that certainly share a scale.
        let tile_cols = window.format.scale_tile.map_or(WHOLE, |tile| tile.cols);
        let shared = if tile_cols == WHOLE {
            layout.cols
        } else {
            gcd(gcd(layout.run(), window.col_multiple), tile_cols)
        };
        let mut scales: Vec<([usize; 2], ScaleAt)> = Vec::new();
        let mut values = Vec::new();
        for (reg, code) in single.into_iter().enumerate() {
            let [row, col] = layout.reg_place(reg);
            let place = [row, col / shared * shared];
            if !scales.iter().any(|(known, _)| *known == place) {
                let found = self.scale_at(window, layout, place);
                scales.push((place, found));
            }
            let (scale, zero) = scales.iter().find(|(known, _)| *known == place).expect("added").1;
            let number = match zero {
                None => self.decode_code(element, code),
                Some(zero) => {
                    let less = self.code.op(Class::B32, "sub.s32", [code.into(), zero.into()]);
                    self.code.op(Class::B32, "cvt.rn.f32.s32", [less.into()])
                }
            };
            let real = match scale {
                None => number,
                Some(scale) => {
                    self.code.op(Class::B32, "mul.rn.f32", [number.into(), scale.into()])
                }
            };
            values.push(self.or_zero_outside(window, layout, [row, col], real));
        }
        values
    }

    /// Code 0 need not stand for zero.
    fn or_zero_outside(
        &mut self,
        window: &PackedWindow,
        layout: &Layout,
        [row, col]: [usize; 2],
        real: Reg,
    ) -> Reg {
        if window.format.element.decode(0) == 0.0 && !window.format.zero_point {
            return real;
        }
        let (_, row_inside) = self.window_row(window, layout, row);
        let at = self.window_col(window, layout, col);
        let inside = self.inside(at, window.cols.into());
        let inside = self.both(inside, row_inside);
        let sources = [real.into(), 0.0_f32.into(), inside.into()];
        self.code.op(Class::B32, "selp.b32", sources)
    }

    fn window_col(&mut self, window: &PackedWindow, layout: &Layout, col: usize) -> Reg {
        let part = self.thread_part(layout, Some(Axis::Cols));
        let at = self.add_part(window.col, part);
        #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
        self.add_index(Some(at), col as i64)
    }

    /// Scale and zero point of the element at a place of the window, besides what the thread adds;
    /// the tensor's scale is multiplied in.
    pub(crate) fn scale_at(
        &mut self,
        window: &PackedWindow,
        layout: &Layout,
        [row, col]: [usize; 2],
    ) -> ScaleAt {
        let Some(tile) = window.format.scale_tile else { return (None, None) };
        if let Some(ring) = window.ring
            && let Some(scales) = ring.scales
            && ring.zeros.is_some() == window.format.zero_point
        {
            let bytes = tile.scale.bytes();
            let stored = self.ring_tile((scales, bytes), (&tile, layout), [row, col], ring.skipped);
            let zero = ring
                .zeros
                .map(|zeros| self.ring_tile((zeros, 1), (&tile, layout), [row, col], ring.skipped));
            return (Some(self.scale_of(window, &tile, stored)), zero);
        }
        let (at, row_inside) = self.window_row(window, layout, row);
        let col = self.window_col(window, layout, col);
        let inside = self.inside(col, window.cols.into());
        let inside = self.both(inside, row_inside);
        let index = self.scale_index(window, &tile, (at, col));
        let scale = self.load_scale(window, &tile, index, inside);
        let zero = window.format.zero_point.then(|| {
            let address = self.argument(window.words + 2);
            let address = self.add(address.into(), index.into());
            self.load_guarded((address, 0), 8, inside)
        });
        (Some(scale), zero)
    }

    fn scale_index(&mut self, window: &PackedWindow, tile: &ScaleTile, at: (Reg, Reg)) -> Reg {
        let down = self.tiles_before(at.0, tile.rows);
        let across = self.tiles_before(at.1, tile.cols);
        let (cols, rows) = (window.cols, window.rows);
        let tiles_across = self.tiles(cols, tile.cols);
        let index = match (down, across) {
            (None, None) => self.code.op(Class::B64, "mov.b64", [0.into()]),
            (None, Some(across)) => across,
            (Some(down), None) => down,
            (Some(down), Some(across)) => {
                self.mad(down.into(), tiles_across.clone(), across.into())
            }
        };
        let Some((matrix, _)) = window.matrix else { return index };
        let tiles_down = self.tiles(rows, tile.rows);
        let per_matrix = match (tiles_down, tiles_across) {
            (Operand::Int(1), across) => across,
            (down, Operand::Int(1)) => down,
            (down, across) => self.code.op(Class::B64, "mul.lo.s64", [down, across]).into(),
        };
        self.mad(matrix.into(), per_matrix, index.into())
    }

    /// Scale tiles before an index; none if there is one tile.
    pub(crate) fn tiles_before(&mut self, at: Reg, extent: usize) -> Option<Reg> {
        match extent {
            WHOLE => None,
            1 => Some(at),
            extent => {
                let by = i64::from(extent.trailing_zeros());
                Some(self.code.op(Class::B64, "shr.u64", [at.into(), by.into()]))
            }
        }
    }

    /// Scale tiles along an axis.
    pub(crate) fn tiles(&mut self, extent: Reg, tile: usize) -> Operand {
        match tile {
            WHOLE => 1.into(),
            1 => extent.into(),
            tile => {
                #[expect(clippy::cast_possible_wrap, reason = "tiles are small")]
                let (less_one, by) = (tile as i64 - 1, i64::from(tile.trailing_zeros()));
                self.before(|code| {
                    let sum = code.op(Class::B64, "add.s64", [extent.into(), less_one.into()]);
                    code.op(Class::B64, "shr.u64", [sum.into(), by.into()])
                })
                .into()
            }
        }
    }

    fn load_scale(
        &mut self,
        window: &PackedWindow,
        tile: &ScaleTile,
        index: Reg,
        inside: Reg,
    ) -> Reg {
        let bytes = tile.scale.bytes();
        #[expect(clippy::cast_possible_wrap, reason = "bytes of a scale")]
        let step = bytes as i64;
        let scales = self.argument(window.words + 1);
        let address = self.mad(index.into(), step.into(), scales.into());
        let stored = self.load_guarded((address, 0), bytes * 8, inside);
        self.scale_of(window, tile, stored)
    }

    /// The scale that is stored so, times the tensor's.
    fn scale_of(&mut self, window: &PackedWindow, tile: &ScaleTile, stored: Reg) -> Reg {
        let scale = match (tile.scale, tile.scale.element()) {
            (ScaleType::F32, _) => stored,
            (_, Some(element)) => self.decode_code(element, stored),
            (other, None) => self.decode_bits(&other.float_bits_rule(), stored),
        };
        if !window.format.tensor_scale {
            return scale;
        }
        let tensor = self.tensor_scale(window);
        self.code.op(Class::B32, "mul.rn.f32", [scale.into(), tensor.into()])
    }

    /// The scale of the whole matrix; 0 if it does not exist.
    fn tensor_scale(&mut self, window: &PackedWindow) -> Reg {
        let scales = self.argument(window.words + 3);
        let Some((matrix, exists)) = window.matrix else {
            return self.before(|code| {
                let place = Operand::at(scales, 0);
                code.op(Class::B32, "ld.global.nc.u32", [place])
            });
        };
        let address = self.mad(matrix.into(), 4.into(), scales.into());
        self.load_guarded((address, 0), 32, exists)
    }

    /// A number of so many bits, 0 where it is not there.
    pub(crate) fn load_guarded(
        &mut self,
        (address, offset): (Reg, usize),
        width: usize,
        inside: Reg,
    ) -> Reg {
        let result = self.code.reg(Class::B32);
        self.code.set(result, 0.into());
        let place = Operand::at(address, offset);
        let op = format!("ld.global.nc.u{width}");
        let effect = crate::code::Effect::None;
        self.code.push_with(op, vec![result.into(), place], Some(inside.into()), effect);
        result
    }
}

const fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}
