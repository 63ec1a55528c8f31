//! Rows of bytes on their way from global to shared memory while the threads do something else.

use super::Lower;
use super::convert::Place;
use super::packed::PackedWindow;
use crate::ahead::MOST_COPY;
use crate::code::{Class, Effect, Node, Operand, Reg};
use crate::infer::element_bits;
use crate::layout::{Axis, Layout};
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Op};

/// Rows of bytes of a view.
pub(crate) struct Strip {
    /// Which thread copies which bytes, a run of registers a copy.
    layout: Layout,
    /// Of the row of each register, the address of its first byte and whether it exists.
    rows: Vec<(Reg, Option<Reg>)>,
    /// First byte of the rows that is wanted.
    first: Reg,
    /// Bytes of a row of the view.
    row_bytes: Reg,
    /// What must be a multiple of a copy's bytes besides.
    aligned: Vec<Reg>,
}

impl Strip {
    /// Bytes of one copy.
    fn copy_bytes(&self) -> usize {
        self.layout.run().min(MOST_COPY)
    }
}

impl Lower<'_> {
    /// A layout of `rows` rows of so many bytes.
    fn strip_layout(&self, rows: usize, bytes: usize) -> Layout {
        Layout::blocked([rows, bytes], MOST_COPY.min(bytes), self.warp_bits)
    }

    /// The bytes of a load of a plain view.
    pub(crate) fn load_strip(&mut self, op: &Op) -> Strip {
        let value = op.results[0];
        let ([rows, cols], elem) = (self.shape(value), self.elem(value));
        let bytes = element_bits(elem) / 8;
        let layout = self.strip_layout(rows, cols * bytes);
        let found = match op.kind {
            OpKind::LoadRows(param) => self.given_rows(op, (param, bytes), &layout, 0),
            _ => self.window_rows(op, bytes, &layout, 0).expect("a window of rows"),
        };
        let [first, row_bytes] = [found.col, found.extent].map(|count| self.times(count, bytes));
        let mut aligned = found.aligned;
        aligned.push(first);
        let rows = found.rows.address.into_iter().zip(found.rows.inside).collect();
        Strip { layout, rows, first, row_bytes, aligned }
    }

    /// The codes of a window.
    pub(crate) fn code_strip(&mut self, window: &PackedWindow, [rows, cols]: [usize; 2]) -> Strip {
        let bits = window.format.element.bits();
        let layout = self.strip_layout(rows, cols * bits / 8);
        let row_bytes = self.row_bytes(window);
        let first = self.times(window.col, bits);
        let first = self.code.op(Class::B64, "shr.u64", [first.into(), 3.into()]);
        let tiles = (1, window.rows.into(), row_bytes);
        self.matrix_strip(window, (layout, first), tiles, window.words)
    }

    /// The scales of a window.
    pub(crate) fn scale_strip(&mut self, window: &PackedWindow, shape: [usize; 2]) -> Strip {
        let tile = window.format.scale_tile.expect("the format has scales");
        self.tile_strip(window, shape, (tile.scale.bytes(), 1))
    }

    /// The zero points of a window.
    pub(crate) fn zero_strip(&mut self, window: &PackedWindow, shape: [usize; 2]) -> Strip {
        self.tile_strip(window, shape, (1, 2))
    }

    /// What each scale tile of a window has `bytes` bytes of; in the view's argument of that number.
    fn tile_strip(
        &mut self,
        window: &PackedWindow,
        [rows, cols]: [usize; 2],
        (bytes, word): (usize, usize),
    ) -> Strip {
        let tile = window.format.scale_tile.expect("the format has scales");
        let layout = self.strip_layout(rows.div_ceil(tile.rows), cols.div_ceil(tile.cols) * bytes);
        let first = self.tiles_before(window.col, tile.cols).expect("tiles are smaller than rows");
        let first = self.times(first, bytes);
        let across = self.tiles(window.cols, tile.cols);
        let row_bytes = self.before(|code| {
            let bytes = i64::try_from(bytes).expect("bytes of a scale");
            code.op(Class::B64, "mul.lo.s64", [across, bytes.into()])
        });
        let down = self.tiles(window.rows, tile.rows);
        let tiles = (tile.rows, down, row_bytes);
        self.matrix_strip(window, (layout, first), tiles, window.words + word)
    }

    /// Rows of an array that has `down` rows of `row_bytes` bytes for each matrix, one for each
    /// `tile_rows` rows of the window.
    fn matrix_strip(
        &mut self,
        window: &PackedWindow,
        (layout, first): (Layout, Reg),
        (tile_rows, down, row_bytes): (usize, Operand, Reg),
        word: usize,
    ) -> Strip {
        let array = self.argument(word);
        let row = self.tiles_before(window.row, tile_rows).expect("tiles are smaller than columns");
        let part = self.thread_part(&layout, Some(Axis::Rows));
        let row = self.add_part(row, part);
        let base = match window.matrix {
            None => array,
            Some((matrix, _)) => {
                let per_matrix =
                    self.code.op(Class::B64, "mul.lo.s64", [down.clone(), row_bytes.into()]);
                self.mad(matrix.into(), per_matrix.into(), array.into())
            }
        };
        let mut known: Vec<(usize, (Reg, Option<Reg>))> = Vec::new();
        for reg in 0..layout.num_regs() {
            let down_by = layout.reg_place(reg)[0];
            if known.iter().any(|(known, _)| *known == down_by) {
                continue;
            }
            let at = self.add_index(Some(row), i64::try_from(down_by).expect("tiles are small"));
            let inside = self.inside(at, down.clone());
            let inside = self.both_of(Some(inside), window.matrix.map(|(_, exists)| exists));
            let address = self.mad(at.into(), row_bytes.into(), base.into());
            known.push((down_by, (address, inside)));
        }
        let row_of = |reg: usize| {
            let down_by = layout.reg_place(reg)[0];
            known.iter().find(|(known, _)| *known == down_by).expect("was added").1
        };
        let rows = (0..layout.num_regs()).map(row_of).collect();
        Strip { layout, rows, first, row_bytes, aligned: vec![array, row_bytes, first] }
    }

    /// Starts the copies of a strip to shared memory, `place` in bytes; what lies outside becomes
    /// zeros. Rows that are not aligned for copies are copied before this goes on.
    pub(crate) fn copy_strip(&mut self, strip: &Strip, place: Place) {
        let bytes = strip.copy_bytes();
        let fits = self.aligned(&strip.aligned, bytes);
        let part = self.thread_part(&strip.layout, Some(Axis::Cols));
        let col = self.add_part(strip.first, part);
        let to = self.shared_base(&strip.layout, (place, 1));
        self.code.begin();
        self.copies(strip, col, (place, &to));
        let yes = self.code.close();
        self.code.begin();
        self.single_bytes(strip, col, (place, &to));
        let no = self.code.close();
        self.code.node(Node::If { condition: fits, yes, no, together: false });
    }

    fn copies(&mut self, strip: &Strip, col: Reg, (place, to): (Place, &Operand)) {
        let bytes = strip.copy_bytes();
        let guard = self.first_copy(&strip.layout).map(Operand::from);
        let op = match bytes {
            MOST_COPY => "cp.async.cg.shared.global",
            _ => "cp.async.ca.shared.global",
        };
        // By the column that a register adds: how much of a copy lies inside the row.
        let mut sizes: Vec<(usize, Reg)> = Vec::new();
        for first in (0..strip.layout.num_regs()).step_by(bytes) {
            let [row, across] = strip.layout.reg_place(first);
            if !sizes.iter().any(|(known, _)| *known == across) {
                let less = i64::try_from(across).expect("tiles are small");
                let at = self.add_index(Some(col), less);
                let left = self.code.op(Class::B64, "sub.s64", [strip.row_bytes.into(), at.into()]);
                // A column before the first is none that is copied.
                let left = self.code.op(Class::B64, "max.s64", [left.into(), 0.into()]);
                let left =
                    self.code.op(Class::B64, "min.s64", [left.into(), Operand::count(bytes)]);
                let left = self.code.op(Class::B32, "cvt.u32.u64", [left.into()]);
                let before = self.code.op(Class::Pred, "setp.lt.s64", [at.into(), 0.into()]);
                let sources = [0.into(), left.into(), before.into()];
                sizes.push((across, self.code.op(Class::B32, "selp.b32", sources)));
            }
            let size = sizes.iter().find(|(known, _)| *known == across).expect("was added").1;
            let (address, inside) = strip.rows[first];
            let size = match inside {
                None => size,
                Some(inside) => {
                    let sources = [size.into(), 0.into(), inside.into()];
                    self.code.op(Class::B32, "selp.b32", sources)
                }
            };
            let from = self.add(address.into(), col.into());
            let to = Operand::at(to.clone(), place.first + row * place.pitch + across);
            let operands = vec![to, Operand::at(from, across), Operand::count(bytes), size.into()];
            self.code.push_with(op, operands, guard.clone(), Effect::Fill);
        }
    }

    /// Byte by byte, each checked.
    fn single_bytes(&mut self, strip: &Strip, col: Reg, (place, to): (Place, &Operand)) {
        let bytes = strip.copy_bytes();
        let guard = self.first_copy(&strip.layout).map(Operand::from);
        let (byte, go_on) = (self.code.reg(Class::B32), self.code.reg(Class::Pred));
        self.code.set(byte, 0.into());
        self.code.begin();
        self.code.push("setp.lt.u32", vec![go_on.into(), byte.into(), Operand::count(bytes)]);
        let head = self.code.close();
        self.code.begin();
        let col = self.add_part(col, Some(byte));
        let to = self.code.op(Class::B32, "add.u32", [byte.into(), to.clone()]);
        for first in (0..strip.layout.num_regs()).step_by(bytes) {
            let [row, across] = strip.layout.reg_place(first);
            let (address, row_inside) = strip.rows[first];
            let at = self.add(col.into(), Operand::count(across));
            let inside = self.inside(at, strip.row_bytes.into());
            let inside = self.both_of(row_inside, Some(inside)).expect("there is one");
            let from = self.add(address.into(), at.into());
            let value = self.load_guarded((from, 0), 8, inside);
            let to = Operand::at(to, place.first + row * place.pitch + across);
            let operands = vec![to, value.into()];
            self.code.push_with("st.shared.u8", operands, guard.clone(), Effect::Fill);
        }
        let next = self.code.op(Class::B32, "add.u32", [byte.into(), 1.into()]);
        self.code.set(byte, next.into());
        let body = self.code.close();
        self.code.node(Node::Loop { head, go_on, body, runs: true });
    }

    /// Whether all of these are multiples of a power of two.
    pub(crate) fn aligned(&mut self, parts: &[Reg], by: usize) -> Reg {
        let mut all = parts[0];
        for part in &parts[1..] {
            all = self.code.op(Class::B64, "or.b64", [all.into(), (*part).into()]);
        }
        let mask = i64::try_from(by - 1).expect("copies are small");
        let low = self.code.op(Class::B64, "and.b64", [all.into(), mask.into()]);
        self.code.op(Class::Pred, "setp.eq.u64", [low.into(), 0.into()])
    }

    /// A count of elements in units of `by`.
    pub(crate) fn times(&mut self, count: Reg, by: usize) -> Reg {
        match by {
            1 => count,
            by => {
                let by = i64::try_from(by).expect("bits of an element");
                self.code.op(Class::B64, "mul.lo.s64", [count.into(), by.into()])
            }
        }
    }
}

/// The layout of the bytes that hold codes of less than a byte.
pub(crate) fn byte_layout(layout: &Layout, elem: Elem) -> Layout {
    let codes = 8 / element_bits(elem);
    let less = codes.ilog2() as usize;
    let step = |step: &usize| step / codes;
    Layout {
        rows: layout.rows,
        cols: layout.cols / codes,
        regs: layout.regs[less..].iter().map(step).collect(),
        lanes: layout.lanes.map(|lane| lane / codes),
        warps: layout.warps.iter().map(step).collect(),
    }
}
