//! Tiles that a loop multiplies, copied to shared memory turns before they are read.
//!
//! A ring has as many slots as the kernel has stages, and a slot what one turn reads. Each turn waits
//! for its own slot, meets the other threads, starts the copies into the slot that the turn before has
//! read, and goes on to compute while they run.

use super::bulk::{Arrivals, BARRIER_BYTES, rows_alone};
use super::convert::{Place, Slot, pitch};
use super::operand::MATRIX_ROW;
use super::strip::byte_layout;
use super::{Held, Lower, Made};
use crate::ahead::{Ahead, LEAST_COPY, ahead, scale_tiles};
use crate::code::{Buffer, Class, Effect, Node, Operand, Reg};
use crate::infer::element_bits;
use crate::layout::Layout;
use tessera_tile_ir::format::{Element, Format, ScaleTile};
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Op, OpId, Region, Value};

/// Bytes as a tile has them.
const BYTE: Elem = Elem::Stored(Element::F8E4M3);

/// Slots of a ring beyond which nothing is to be gained.
const MOST_STAGES: usize = 8;

/// The slots of one loop.
#[derive(Debug)]
pub(crate) struct Ring {
    ahead: Ahead,
    loads: Vec<(OpId, Slots)>,
    number: u32,
    /// Slots, and bytes of one.
    stages: usize,
    slot_bytes: usize,
    /// Offsets of the slot that this turn reads and of the one that is filled next.
    read: Reg,
    fill: Reg,
    /// The barriers at which rows arrive that are copied whole, if any are.
    arrivals: Option<Arrivals>,
    /// The counter of the turn whose tiles are fetched next, how it goes on, and where it ends.
    next: Reg,
    step: usize,
    end: Reg,
}

/// Where the tile of a load lies in a slot.
#[derive(Debug, Clone, Copy)]
enum Slots {
    Tile(Place),
    Window(RingWindow),
}

/// Where the parts of a window of a packed view lie, with rows counted in scale tiles where there are
/// such.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RingWindow {
    /// Codes, in bytes.
    pub(crate) codes: Place,
    /// Scales, in bytes, if they are there too.
    pub(crate) scales: Option<Place>,
    /// Zero points, likewise.
    pub(crate) zeros: Option<Place>,
    /// Rows and columns of the window before those wanted.
    pub(crate) skipped: [usize; 2],
}

impl Ring {
    /// Where the tile of a load lies this turn.
    fn slot_of(&self, slots: Slots) -> Slots {
        let slot = Some(Slot { offset: self.read, ring: self.number });
        let at = |place: Place| Place { slot, ..place };
        match slots {
            Slots::Tile(place) => Slots::Tile(at(place)),
            Slots::Window(window) => Slots::Window(RingWindow {
                codes: at(window.codes),
                scales: window.scales.map(at),
                zeros: window.zeros.map(at),
                ..window
            }),
        }
    }
}

impl Lower<'_> {
    /// Bytes that the slots of any one loop in a region need. No two rings are in use at a time.
    pub(crate) fn bytes_of_rings(&self, region: &Region) -> usize {
        let mut most = 0;
        for op in region.ops.iter().map(|id| self.kernel.op(*id)) {
            for region in &op.regions {
                most = most.max(self.bytes_of_rings(region));
            }
            if let (OpKind::For { .. }, [region]) = (&op.kind, op.regions.as_slice())
                && let Some(ahead) = self.loads_ahead(region)
            {
                most = most.max(self.slots_of(&ahead).1 * self.stages_ahead);
            }
        }
        most
    }

    /// The loads of a loop that run ahead of it, if any do.
    pub(crate) fn loads_ahead(&self, region: &Region) -> Option<Ahead> {
        if self.stages_ahead < 2 { None } else { ahead(self.kernel, region) }
    }

    /// Starts what the first turns of a loop read. There is a first turn.
    pub(crate) fn open_ring(
        &mut self,
        ahead: Ahead,
        region: &Region,
        ((start, end), step): ((Reg, Reg), usize),
    ) -> Ring {
        let (loads, slot_bytes) = self.slots_of(&ahead);
        // A loop with small slots has the room of the one with the largest.
        let stages = (self.ring_bytes / slot_bytes).min(MOST_STAGES).max(self.stages_ahead);
        let rows = |(id, _): &(OpId, Slots)| {
            let op = self.kernel.op(*id);
            rows_alone(op, self.shape(op.results[0]))
        };
        let rows: usize = loads.iter().map(rows).sum();
        let arrivals = (rows > 0).then(|| self.arrivals(stages, rows));
        let [read, fill] = [(); 2].map(|()| self.code.reg(Class::B32));
        // When the loop is entered again the ring goes on where it was.
        self.before(|code| code.set(read, 0.into()));
        let ring = Ring {
            number: self.rings,
            ahead,
            loads,
            stages,
            slot_bytes,
            read,
            fill,
            arrivals,
            next: self.code.reg(Class::B64),
            step,
            end,
        };
        self.rings += 1;
        self.code.set(ring.next, start.into());
        if let Some(arrivals) = &ring.arrivals {
            self.code.set(arrivals.fill, arrivals.read.into());
        }
        // Whoever still reads another ring's slots must be done before these are filled.
        let begins = Effect::Open(ring.number);
        self.code.push_with("mov.b32", vec![fill.into(), read.into()], None, begins);
        self.code.remark("a ring opens");
        if stages == 2 {
            self.fetch_next(&ring, region);
            return ring;
        }
        let (fetched, go_on) = (self.code.reg(Class::B32), self.code.reg(Class::Pred));
        self.code.set(fetched, 0.into());
        self.code.begin();
        self.code
            .push("setp.lt.u32", vec![go_on.into(), fetched.into(), Operand::count(stages - 1)]);
        let head = self.code.close();
        self.code.begin();
        self.fetch_next(&ring, region);
        let one_more = self.code.op(Class::B32, "add.u32", [fetched.into(), 1.into()]);
        self.code.set(fetched, one_more.into());
        let body = self.code.close();
        self.code.node(Node::Loop { head, go_on, body, runs: true });
        ring
    }

    /// Starts the copies of the next turn that has none, and goes on to the slot after it.
    fn fetch_next(&mut self, ring: &Ring, region: &Region) {
        self.fetch(ring, region);
        let past = self.advance(ring, ring.fill);
        if let Some(arrivals) = &ring.arrivals {
            self.advance_barrier(arrivals, arrivals.fill, past);
        }
    }

    /// At the beginning of a turn: waits for its slot, and starts another.
    pub(crate) fn turn_ring(&mut self, ring: &Ring, region: &Region) {
        let pending = Operand::count(ring.stages - 2);
        self.code.push_with("cp.async.wait_group", vec![pending], None, Effect::Filled);
        if let Some(arrivals) = &ring.arrivals {
            self.wait_for(arrivals);
        }
        // Zeros of earlier turns must be there before copies overwrite them.
        let barrier = Node::Barrier { shared: true, needed: true, fence: true, kept: true };
        self.code.node(barrier);
        self.fetch_next(ring, region);
        for (id, slots) in &ring.loads {
            let value = self.kernel.op(*id).results[0];
            match ring.slot_of(*slots) {
                Slots::Tile(place) => self.keep_staged(value, place),
                Slots::Window(window) => {
                    self.windows.insert(value, window);
                    let region = self.made.last_mut().expect("a region is open");
                    region.push(Made::Window(value));
                }
            }
        }
    }

    /// At the end of a turn.
    pub(crate) fn leave_slot(&mut self, ring: &Ring) {
        let past = self.advance(ring, ring.read);
        if let Some(arrivals) = &ring.arrivals {
            self.advance_barrier(arrivals, arrivals.read, past);
            // Once around, the barriers are in their next phase.
            let sources = [1.into(), 0.into(), past.into()];
            let turned = self.code.op(Class::B32, "selp.b32", sources);
            let sources = [arrivals.parity.into(), turned.into()];
            let parity = self.code.op(Class::B32, "xor.b32", sources);
            self.code.set(arrivals.parity, parity.into());
        }
    }

    /// Moves a slot's offset to the next; whether that is the first again.
    fn advance(&mut self, ring: &Ring, slot: Reg) -> Reg {
        let next =
            self.code.op(Class::B32, "add.u32", [slot.into(), Operand::count(ring.slot_bytes)]);
        let end = Operand::count(ring.slot_bytes * ring.stages);
        let past = self.code.op(Class::Pred, "setp.ge.u32", [next.into(), end]);
        let next = self.code.op(Class::B32, "selp.b32", [0.into(), next.into(), past.into()]);
        self.code.set(slot, next.into());
        past
    }

    /// Moves a barrier's address to the next, the first if that is `past` the last.
    fn advance_barrier(&mut self, arrivals: &Arrivals, barrier: Reg, past: Reg) {
        let next =
            self.code.op(Class::B32, "add.u32", [barrier.into(), Operand::count(BARRIER_BYTES)]);
        let sources = [arrivals.first.into(), next.into(), past.into()];
        let next = self.code.op(Class::B32, "selp.b32", sources);
        self.code.set(barrier, next.into());
    }

    /// Starts the copies of one turn, if there is such a turn, into the slot that is next.
    fn fetch(&mut self, ring: &Ring, region: &Region) {
        let there = self.code.op(Class::Pred, "setp.lt.s64", [ring.next.into(), ring.end.into()]);
        self.code.begin();
        self.open_region();
        let scalar = Layout::copies([1, 1], self.warp_bits);
        self.keep(region.args[0], Held { layout: scalar, regs: vec![ring.next] });
        for &id in &ring.ahead.places {
            let op = self.kernel.op(id);
            self.code.loc = op.loc;
            self.op(op, id);
        }
        for (id, slots) in &ring.loads {
            let op = self.kernel.op(*id);
            self.code.loc = op.loc;
            self.copy_load(op, *slots, ring);
        }
        if ring.arrivals.is_some() {
            // Lanes that wrote zeros went another way than the others.
            self.code.push("bar.warp.sync", vec![Operand::Int(0xffff_ffff)]);
        }
        self.close_region();
        let yes = self.code.close();
        self.code.node(Node::If { condition: there, yes, no: Vec::new(), together: true });
        self.code.push("cp.async.commit_group", Vec::new());
        let next = self.advanced(ring.next, ring.step, ring.end);
        self.code.set(ring.next, next.into());
    }

    /// Starts the copies of a load.
    fn copy_load(&mut self, op: &Op, slots: Slots, ring: &Ring) {
        let slot = Some(Slot { offset: ring.fill, ring: ring.number });
        let into = |place: Place| Place { slot, ..place };
        match slots {
            Slots::Tile(place) => {
                let bytes = element_bits(self.elem(op.results[0])) / 8;
                let place = Place { pitch: place.pitch * bytes, ..into(place) };
                match &ring.arrivals {
                    Some(arrivals) if rows_alone(op, self.shape(op.results[0])) > 0 => {
                        self.copy_rows(op, place, arrivals);
                    }
                    _ => {
                        let strip = self.load_strip(op);
                        self.copy_strip(&strip, place);
                    }
                }
            }
            Slots::Window(parts) => {
                let window = self.packed_window(op.results[0]).expect("a window of a packed view");
                let shape = self.shape(op.results[0]);
                let strip = self.code_strip(&window, shape);
                self.copy_strip(&strip, into(parts.codes));
                if let Some(place) = parts.scales {
                    let strip = self.scale_strip(&window, shape);
                    self.copy_strip(&strip, into(place));
                }
                if let Some(place) = parts.zeros {
                    let strip = self.zero_strip(&window, shape);
                    self.copy_strip(&strip, into(place));
                }
            }
        }
    }

    /// Where in a slot the tiles of loads lie, and bytes of a slot.
    fn slots_of(&self, ahead: &Ahead) -> (Vec<(OpId, Slots)>, usize) {
        let mut bytes = 0;
        let slots = |&id: &OpId| (id, self.slots(self.kernel.op(id), &mut bytes));
        let loads = ahead.loads.iter().map(slots).collect();
        (loads, bytes.next_multiple_of(128))
    }

    /// Room in a slot for what a load gives, after what the slot has.
    fn slots(&self, op: &Op, used: &mut usize) -> Slots {
        let value = op.results[0];
        let (shape, elem) = (self.shape(value), self.elem(value));
        let scale_tiles = self.scale_tiles_of(value);
        let mut place = |[rows, cols]: [usize; 2], bytes: usize| {
            let (first, pitch) = (*used, pitch([rows, cols], bytes, MATRIX_ROW));
            *used = (first + rows * pitch * bytes).next_multiple_of(16);
            Place { buffer: Buffer::Ring, first, pitch, slot: None }
        };
        let Elem::Packed(format) = elem else {
            return Slots::Tile(place(shape, element_bits(elem) / 8));
        };
        let codes = place([shape[0], shape[1] * format.element.bits() / 8], 1);
        let [mut scales, mut zeros] = [None, None];
        if let Some([down, across]) = scale_tiles {
            let bytes = format.scale_tile.map_or(0, |tile| tile.scale.bytes());
            let room = |bytes: usize| (bytes >= LEAST_COPY).then_some(bytes);
            scales = room(across * bytes).map(|bytes| place([down, bytes], 1));
            let zero_bytes = room(across).filter(|_| format.zero_point);
            zeros = zero_bytes.map(|bytes| place([down, bytes], 1));
        }
        Slots::Window(RingWindow { codes, scales, zeros, skipped: [0, 0] })
    }

    /// Codes of a window that lies in a slot, in a layout.
    pub(crate) fn ring_codes(
        &mut self,
        format: &'static Format,
        ring: RingWindow,
        layout: &Layout,
    ) -> Vec<Reg> {
        let elem = Elem::Packed(format);
        let ([rows, cols], bits) = (ring.skipped, element_bits(elem));
        let (layout, carrier, bytes) = match bits {
            32 => (layout.clone(), Elem::F32, 4),
            8.. => (layout.clone(), Elem::Stored(format.element), bits / 8),
            _ => (byte_layout(layout, elem), BYTE, 1),
        };
        let part = rows * layout.cols + cols * bits / 8 / bytes;
        let place = Place { pitch: ring.codes.pitch / bytes, ..ring.codes };
        self.read_shared(carrier, &layout, place, part)
    }

    /// The bytes of the scale tile that an element of a window lies in, `place` in bytes.
    pub(crate) fn ring_tile(
        &mut self,
        (place, bytes): (Place, usize),
        (tile, layout): (&ScaleTile, &Layout),
        [row, col]: [usize; 2],
        skipped: [usize; 2],
    ) -> Reg {
        // One element a thread, of the tile of tiles.
        let (down, across) = (layout.rows.div_ceil(tile.rows), layout.cols.div_ceil(tile.cols));
        let step = |step: &usize| {
            let (row, col) = (step / layout.cols / tile.rows, step % layout.cols / tile.cols);
            (row * across + col) * bytes
        };
        let tiles = Layout {
            rows: down,
            cols: across * bytes,
            regs: Vec::new(),
            lanes: layout.lanes.map(|lane| step(&lane)),
            warps: layout.warps.iter().map(step).collect(),
        };
        let base = self.shared_base(&tiles, (place, 1));
        let [row, col] = [(row + skipped[0]) / tile.rows, (col + skipped[1]) / tile.cols];
        let from = Operand::at(base, place.first + row * place.pitch + col * bytes);
        let result = self.code.reg(Class::B32);
        let op = format!("ld.shared.u{}", bytes * 8);
        self.code.push_with(op, vec![result.into(), from], None, place.read());
        result
    }

    /// Scale tiles of a window, if they begin with it.
    fn scale_tiles_of(&self, value: Value) -> Option<[usize; 2]> {
        let op = self.op_of(value)?;
        let Elem::Packed(format) = self.elem(value) else { return None };
        let tile = format.scale_tile?;
        let [.., row, col] = op.operands.as_slice() else { return None };
        let multiples = [self.multiple_of(*row), self.multiple_of(*col)];
        scale_tiles(self.shape(value), [tile.rows, tile.cols], multiples)
    }
}
