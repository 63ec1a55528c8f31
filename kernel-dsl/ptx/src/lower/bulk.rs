//! Rows of a view that are given one by one, each copied whole to shared memory by one instruction.
//!
//! Such copies tell a barrier object when they are done: each slot of a ring has one, at which every
//! row arrives, with the bytes that are on their way for it. Whoever reads the slot waits for it.

use super::Lower;
use super::convert::Place;
use crate::code::{Buffer, Class, Effect, Node, Operand, Reg, Share};
use crate::infer::element_bits;
use crate::layout::Layout;
use tessera_tile_ir::Op;
use tessera_tile_ir::op::OpKind;

/// Bytes of a barrier object.
pub(crate) const BARRIER_BYTES: usize = 8;
/// Bytes that copies and their ends are multiples of.
const UNIT: usize = 16;

/// The barrier objects of a ring.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrivals {
    /// Addresses of the one that this turn waits for and of the one whose slot is filled next.
    pub(crate) read: Reg,
    pub(crate) fill: Reg,
    /// Which of its phases this turn waits for, 0 or 1.
    pub(crate) parity: Reg,
    /// Address of the first.
    pub(crate) first: Reg,
    /// What they are to those who put barriers between accesses.
    buffer: Buffer,
}

impl Arrivals {
    /// Using one.
    fn used(&self) -> Effect {
        Effect::Read(self.buffer, Share::Unknown)
    }
}

/// Rows of a load that are copied so; 0 for other loads.
pub(crate) fn rows_alone(op: &Op, [rows, _]: [usize; 2]) -> usize {
    if matches!(op.kind, OpKind::LoadRows(_)) { rows } else { 0 }
}

impl Lower<'_> {
    /// Makes a barrier object for each slot, at which so many rows arrive each turn.
    pub(crate) fn arrivals(&mut self, slots: usize, rows: usize) -> Arrivals {
        let at = self.stage_bytes.next_multiple_of(BARRIER_BYTES);
        self.stage_bytes = (at + slots * BARRIER_BYTES).next_multiple_of(UNIT);
        let buffer = Buffer::Stage(self.stages);
        self.stages += 1;
        let first_thread = self.first_thread();
        self.before(|code| {
            let shared = code.op(Class::B32, "mov.u32", ["smem".into()]);
            let first = code.op(Class::B32, "add.u32", [shared.into(), Operand::count(at)]);
            for slot in 0..slots {
                let operands = vec![Operand::at(first, slot * BARRIER_BYTES), Operand::count(rows)];
                let guard = Some(first_thread.into());
                let made = Effect::Write(buffer, Share::Op(u32::MAX));
                code.push_with("mbarrier.init.shared::cta.b64", operands, guard, made);
            }
            // The copies know of them as well.
            code.push("fence.mbarrier_init.release.cluster", Vec::new());
            let [read, fill, parity] = [(); 3].map(|()| code.reg(Class::B32));
            code.set(read, first.into());
            code.set(parity, 0.into());
            Arrivals { read, fill, parity, first, buffer }
        })
    }

    /// Waits until every row of this turn's slot has come.
    pub(crate) fn wait_for(&mut self, arrivals: &Arrivals) {
        self.code.begin();
        let sources = [Operand::at(arrivals.read, 0), arrivals.parity.into()];
        let done = self.code.op(Class::Pred, "mbarrier.try_wait.parity.shared::cta.b64", sources);
        let go_on = self.not(done);
        let head = self.code.close();
        self.code.node(Node::Loop { head, go_on, body: Vec::new(), runs: false });
    }

    /// Starts the copies of a load of rows, `place` in bytes; rows that do not exist become zeros.
    /// Where rows are not wanted to their end, or not aligned, they are copied in pieces.
    pub(crate) fn copy_rows(&mut self, op: &Op, place: Place, arrivals: &Arrivals) {
        let OpKind::LoadRows(param) = op.kind else { unreachable!("asked of rows only") };
        let ([rows, cols], elem) = (self.shape(op.results[0]), self.elem(op.results[0]));
        let bytes = element_bits(elem) / 8;
        let whole = i64::try_from(cols * bytes).expect("tiles are small");
        let layout = Layout::blocked([rows, 1], 1, self.warp_bits);
        let found = self.given_rows(op, (param, bytes), &layout, 0);
        let [first, row_bytes] = [found.col, found.extent].map(|count| self.times(count, bytes));
        let end = self.add(first.into(), whole.into());
        let inside = self.code.op(Class::Pred, "setp.le.s64", [end.into(), row_bytes.into()]);
        let begins = self.code.op(Class::Pred, "setp.ge.s64", [first.into(), 0.into()]);
        let inside = self.both(inside, begins);
        let mut aligned = found.aligned;
        aligned.push(first);
        let aligned = self.aligned(&aligned, UNIT);
        let fits = self.both(inside, aligned);
        let to = self.shared_base(&layout, (place, 1));
        self.code.begin();
        for reg in 0..layout.num_regs() {
            let down = layout.reg_place(reg)[0] * place.pitch;
            let to = Operand::at(to.clone(), place.first + down);
            let row = (found.rows.address[reg], found.rows.inside[reg].expect("rows are checked"));
            self.copy_row((row, first, whole), to, (&layout, arrivals));
        }
        let yes = self.code.close();
        self.code.begin();
        for _ in 0..layout.num_regs() {
            self.arrive(&layout, arrivals, None);
        }
        self.open_region();
        let strip = self.load_strip(op);
        self.copy_strip(&strip, place);
        self.close_region();
        let no = self.code.close();
        self.code.node(Node::If { condition: fits, yes, no, together: true });
    }

    /// Starts the copy of a row, or writes zeros.
    fn copy_row(
        &mut self,
        ((address, exists), first, whole): ((Reg, Reg), Reg, i64),
        to: Operand,
        (layout, arrivals): (&Layout, &Arrivals),
    ) {
        let sources = [whole.into(), 0.into(), exists.into()];
        let bytes = self.code.op(Class::B32, "selp.b32", sources);
        self.arrive(layout, arrivals, Some(bytes));
        let mine = self.first_copy(layout);
        let from = self.add(address.into(), first.into());
        let guard = self.both_of(Some(exists), mine).map(Operand::from);
        let operands =
            vec![to.clone(), Operand::at(from, 0), whole.into(), Operand::at(arrivals.fill, 0)];
        let op = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes";
        self.code.push_with(op, operands, guard, Effect::Refill);
        let missing = self.not(exists);
        let condition = self.both_of(Some(missing), mine).expect("there is one");
        self.code.begin();
        self.zeros(to, whole);
        let yes = self.code.close();
        self.code.node(Node::If { condition, yes, no: Vec::new(), together: false });
    }

    /// Tells the barrier that a row is copied, with the bytes that it waits for, if there are any.
    fn arrive(&mut self, layout: &Layout, arrivals: &Arrivals, bytes: Option<Reg>) {
        let guard = self.first_copy(layout).map(Operand::from);
        let state = self.code.reg(Class::B64);
        let mut operands = vec![state.into(), Operand::at(arrivals.fill, 0)];
        operands.extend(bytes.map(Operand::from));
        let op = match bytes {
            Some(_) => "mbarrier.arrive.expect_tx.shared::cta.b64",
            None => "mbarrier.arrive.shared::cta.b64",
        };
        self.code.push_with(op, operands, guard, arrivals.used());
    }

    /// Writes so many bytes of zeros.
    fn zeros(&mut self, to: Operand, bytes: i64) {
        let Operand::At(base, offset) = to else { unreachable!("a place in shared memory") };
        let at = self.code.op(Class::B32, "add.u32", [*base, offset.into()]);
        let end = self.code.op(Class::B32, "add.u32", [at.into(), bytes.into()]);
        let go_on = self.code.reg(Class::Pred);
        self.code.begin();
        self.code.push("setp.lt.u32", vec![go_on.into(), at.into(), end.into()]);
        let head = self.code.close();
        self.code.begin();
        let zero = self.code.op(Class::B32, "mov.b32", [0.into()]);
        let operands = vec![Operand::at(at, 0), Operand::vector(&[zero; 4])];
        self.code.push_with("st.shared.v4.u32", operands, None, Effect::Fill);
        let next = self.code.op(Class::B32, "add.u32", [at.into(), Operand::count(UNIT)]);
        self.code.set(at, next.into());
        let body = self.code.close();
        self.code.node(Node::Loop { head, go_on, body, runs: true });
    }
}
