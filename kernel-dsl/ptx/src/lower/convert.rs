//! Tiles from one layout to another: by renaming registers, by choosing among them, by shuffles
//! within a warp, or through shared memory.

use super::{Held, Lower};
use crate::code::{Buffer, Class, Effect, Operand, Reg, Share};
use crate::infer::element_bits;
use crate::layout::{Axis, LANE_BITS, Layout};
use tessera_tile_ir::Elem;

impl Lower<'_> {
    /// The registers of `want`.
    pub(crate) fn convert(&mut self, elem: Elem, held: &Held, want: &Layout) -> Vec<Reg> {
        let from = &held.layout;
        if from.lanes == want.lanes && from.warps == want.warps {
            return self.renamed(elem, held, want);
        }
        if let Some(regs) = self.chosen(elem, held, want) {
            return regs;
        }
        if elem != Elem::Bool
            && let Some(regs) = self.shuffled(elem, held, want)
        {
            return regs;
        }
        self.exchanged(elem, held, want)
    }

    /// A layout with bits of registers that change nothing, from the one without them.
    pub(crate) fn spread(&mut self, elem: Elem, held: &Held, want: &Layout) -> Held {
        let single = self.unpacked(elem, held);
        let place = |reg: usize| {
            let mut bit = 0;
            let mut at = 0;
            for (i, &step) in want.regs.iter().enumerate() {
                if step != 0 {
                    at |= (reg >> i & 1) << bit;
                    bit += 1;
                }
            }
            at
        };
        let regs: Vec<Reg> = (0..want.num_regs()).map(|reg| single[place(reg)]).collect();
        let regs = self.packed(elem, &regs, Self::pack(elem, want));
        Held { layout: want.clone(), regs }
    }

    fn renamed(&mut self, elem: Elem, held: &Held, want: &Layout) -> Vec<Reg> {
        if held.layout.regs == want.regs {
            return held.regs.clone();
        }
        let single = self.unpacked(elem, held);
        let parts: Vec<usize> =
            (0..held.layout.num_regs()).map(|r| held.layout.reg_part(r)).collect();
        let find = |part: usize| {
            parts.iter().position(|known| *known == part).expect("threads hold the same elements")
        };
        let regs: Vec<Reg> =
            (0..want.num_regs()).map(|reg| single[find(want.reg_part(reg))]).collect();
        self.packed(elem, &regs, Self::pack(elem, want))
    }

    /// Where threads hold all that is wanted of them and more.
    fn chosen(&mut self, elem: Elem, held: &Held, want: &Layout) -> Option<Vec<Reg>> {
        let from = &held.layout;
        let pairs = || {
            let lanes = from.lanes.iter().zip(&want.lanes);
            lanes.chain(from.warps.iter().zip(&want.warps))
        };
        let subset =
            pairs().all(|(has, wants)| has == wants || *has == 0 && from.regs.contains(wants));
        if !subset {
            return None;
        }
        let mut single = self.unpacked(elem, held);
        let mut layout = from.clone();
        let moves: Vec<usize> =
            pairs().filter(|(has, wants)| has != wants).map(|(_, w)| *w).collect();
        for step in moves {
            let bit = layout.regs.iter().position(|known| *known == step)?;
            let second = self.thread_bit(want, step);
            let rest: Vec<usize> = (0..single.len()).filter(|reg| reg >> bit & 1 == 0).collect();
            single = rest
                .iter()
                .map(|reg| self.choose(elem, second, single[reg | 1 << bit], single[*reg]))
                .collect();
            layout.regs.remove(bit);
        }
        let layout = Layout { lanes: want.lanes, warps: want.warps.clone(), ..layout };
        let pack = Self::pack(elem, &layout);
        let regs = self.packed(elem, &single, pack);
        Some(self.renamed(elem, &Held { layout, regs }, want))
    }

    /// Where every element wanted lies in the same warp, in a register that is the same for all
    /// lanes.
    fn shuffled(&mut self, elem: Elem, held: &Held, want: &Layout) -> Option<Vec<Reg>> {
        let from = &held.layout;
        let threads: Vec<usize> = want.lanes.iter().chain(&want.warps).copied().collect();
        let warps_agree =
            from.warps.iter().zip(&want.warps).all(|(has, wants)| has == wants || *has == 0);
        let uniform = from.regs.iter().all(|step| want.regs.contains(step));
        if !warps_agree || !uniform {
            return None;
        }
        // Bit `i` of the source lane is a bit of this thread, or a bit of the register's number.
        let mut sources = [0; LANE_BITS];
        for (source, step) in sources.iter_mut().zip(&from.lanes) {
            if *step != 0 && !want.regs.contains(step) {
                threads.iter().position(|known| known == step)?;
                *source = *step;
            }
        }
        let single = self.unpacked(elem, held);
        let steps = threads.iter().map(|step| {
            let lane = sources.iter().position(|source| *source == *step && *step != 0);
            lane.map_or(0, |lane| 1 << lane)
        });
        let lane = self.thread_steps(steps.collect());
        let regs: Vec<Reg> = (0..want.num_regs())
            .map(|reg| {
                let part = want.reg_part(reg);
                let constant: usize = (0..LANE_BITS)
                    .filter(|bit| from.lanes[*bit] & part != 0)
                    .map(|bit| 1 << bit)
                    .sum();
                let source = (0..from.num_regs())
                    .find(|r| {
                        from.reg_part(*r) == from.regs.iter().map(|s| s & part).sum::<usize>()
                    })
                    .expect("registers are told apart by their steps");
                self.shuffle(single[source], lane, constant)
            })
            .collect();
        Some(self.packed(elem, &regs, Self::pack(elem, want)))
    }

    /// A register of lane `lane + constant`.
    fn shuffle(&mut self, reg: Reg, lane: Option<Reg>, constant: usize) -> Reg {
        #[expect(clippy::cast_possible_wrap, reason = "a lane")]
        let constant = constant as i64;
        let source: Operand = match lane {
            None => constant.into(),
            Some(lane) if constant == 0 => lane.into(),
            Some(lane) => self.code.op(Class::B32, "or.b32", [lane.into(), constant.into()]).into(),
        };
        self.shuffle_by("idx", reg, source, 31)
    }

    /// A shuffle of a register of any width.
    pub(crate) fn shuffle_by(&mut self, mode: &str, reg: Reg, by: Operand, clamp: i64) -> Reg {
        let op = format!("shfl.sync.{mode}.b32");
        let one = |code: &mut crate::code::Code, reg: Reg| {
            let sources = [reg.into(), by.clone(), clamp.into(), Operand::Int(0xffff_ffff)];
            code.op(Class::B32, op.clone(), sources)
        };
        if reg.class != Class::B64 {
            return one(&mut self.code, reg);
        }
        let halves = self.code.regs(Class::B32, 2);
        self.code.push("mov.b64", vec![Operand::vector(&halves), reg.into()]);
        let moved: Vec<Reg> = halves.into_iter().map(|half| one(&mut self.code, half)).collect();
        self.code.op(Class::B64, "mov.b64", [Operand::vector(&moved)])
    }

    /// Through shared memory: everybody writes what it holds, everybody reads what it wants.
    fn exchanged(&mut self, elem: Elem, held: &Held, want: &Layout) -> Vec<Reg> {
        let ([rows, cols], each) = ([held.layout.rows, held.layout.cols], exchange_bytes(elem));
        let pitch = pitch([rows, cols], each, apart(&held.layout, each));
        let place = Place { buffer: Buffer::Exchange, first: 0, pitch, slot: None };
        let bytes = rows * pitch * each;
        self.exchange_bytes = self.exchange_bytes.max(bytes);
        self.write_shared(elem, held, place, 0);
        self.read_shared(elem, want, place, 0)
    }

    /// Writes a tile to shared memory, `part` further in its order.
    pub(crate) fn write_shared(&mut self, elem: Elem, held: &Held, place: Place, part: usize) {
        let bytes = exchange_bytes(elem);
        let guard = self.first_copy(&held.layout).map(Operand::from);
        let base = self.shared_base(&held.layout, (place, bytes));
        let words = self.words(elem, held);
        for (first, group, op) in groups("st.shared", elem, &held.layout, &words) {
            let index = held.layout.reg_part(first) + part;
            let [row, col] = [index / held.layout.cols, index % held.layout.cols];
            let to = Operand::at(base.clone(), place.first + (row * place.pitch + col) * bytes);
            let effect = Effect::Write(place.buffer, Share::Op(u32::MAX));
            self.code.push_with(op, vec![to, group], guard.clone(), effect);
        }
    }

    /// Reads a tile from shared memory: the elements of `want`, `part` further in its order.
    pub(crate) fn read_shared(
        &mut self,
        elem: Elem,
        want: &Layout,
        place: Place,
        part: usize,
    ) -> Vec<Reg> {
        let bytes = exchange_bytes(elem);
        let base = self.shared_base(want, (place, bytes));
        let regs = self.code.regs(word_class(bytes), want.num_regs() / unit(elem, want));
        for (first, group, op) in groups("ld.shared", elem, want, &regs) {
            let index = want.reg_part(first) + part;
            let [row, col] = [index / want.cols, index % want.cols];
            let from = Operand::at(base.clone(), place.first + (row * place.pitch + col) * bytes);
            self.code.push_with(op, vec![group, from], None, place.read());
        }
        self.of_words(elem, regs, want)
    }

    /// The thread's first byte of a place in shared memory, less the place's own first.
    pub(crate) fn shared_base(
        &mut self,
        layout: &Layout,
        (place, bytes): (Place, usize),
    ) -> Operand {
        let address = self.shared_address(layout, (place.pitch, bytes));
        match place.slot {
            None => address,
            Some(slot) => {
                let address = match address {
                    Operand::Reg(_) => address,
                    name => self.before(|code| code.op(Class::B32, "mov.u32", [name])).into(),
                };
                self.code.op(Class::B32, "add.u32", [slot.offset.into(), address]).into()
            }
        }
    }

    /// The thread's first byte of a tile in shared memory that starts at 0.
    fn shared_address(&mut self, layout: &Layout, (pitch, bytes): (usize, usize)) -> Operand {
        let cols = layout.cols;
        let step = |step: &usize| (step / cols * pitch + step % cols) * bytes;
        let steps: Vec<usize> = layout.lanes.iter().chain(&layout.warps).map(step).collect();
        if steps.iter().all(|step| *step == 0) {
            return "smem".into();
        }
        let key = (cols, pitch, bytes, steps);
        if let Some(known) = self.shared_addresses.get(&key) {
            return (*known).into();
        }
        let row = self.thread_part(layout, Some(Axis::Rows));
        let col = self.thread_part(layout, Some(Axis::Cols));
        #[expect(clippy::cast_possible_wrap, reason = "shared memory is small")]
        let [row_bytes, col_bytes] = [(pitch * bytes) as i64, bytes as i64];
        let address = self.before(|code| {
            let mut address = code.op(Class::B32, "mov.u32", ["smem".into()]);
            for (part, step) in [(row, row_bytes), (col, col_bytes)] {
                if let Some(part) = part {
                    let sources = [part.into(), step.into(), address.into()];
                    address = code.op(Class::B32, "mad.lo.u32", sources);
                }
            }
            address
        });
        self.shared_addresses.insert(key, address);
        address.into()
    }

    /// Registers as they are written to memory.
    fn words(&mut self, elem: Elem, held: &Held) -> Vec<Reg> {
        match elem {
            Elem::Bool => held
                .regs
                .iter()
                .map(|reg| {
                    let sources = [1.into(), 0.into(), (*reg).into()];
                    self.code.op(Class::B32, "selp.b32", sources)
                })
                .collect(),
            _ if unit(elem, &held.layout) == 1 => self.unpacked(elem, held),
            _ => held.regs.clone(),
        }
    }

    fn of_words(&mut self, elem: Elem, regs: Vec<Reg>, want: &Layout) -> Vec<Reg> {
        match elem {
            Elem::Bool => regs
                .iter()
                .map(|reg| self.code.op(Class::Pred, "setp.ne.u32", [(*reg).into(), 0.into()]))
                .collect(),
            _ if unit(elem, want) == 1 => self.packed(elem, &regs, Self::pack(elem, want)),
            _ => regs,
        }
    }
}

/// Bytes of an element on its way.
pub(crate) fn exchange_bytes(elem: Elem) -> usize {
    match (elem, element_bits(elem)) {
        (Elem::Bool, _) => 1,
        (_, 64) => 8,
        (_, 32) => 4,
        (_, 16) => 2,
        _ => 1,
    }
}

/// Elements of a register on its way: codes that fill bytes stay side by side.
fn unit(elem: Elem, layout: &Layout) -> usize {
    match elem {
        Elem::Stored(element) if element.bits() >= 8 => Lower::pack(elem, layout),
        _ => 1,
    }
}

const fn word_class(bytes: usize) -> Class {
    match bytes {
        8 => Class::B64,
        _ => Class::B32,
    }
}

/// Where a tile lies in shared memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub(crate) buffer: Buffer,
    /// Its first byte.
    pub(crate) first: usize,
    /// Elements from a row to the next.
    pub(crate) pitch: usize,
    /// In which slot of a ring it lies this time.
    pub(crate) slot: Option<Slot>,
}

/// A slot of the ring of that number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    /// How many bytes further its places lie.
    pub(crate) offset: Reg,
    pub(crate) ring: u32,
}

impl Place {
    /// Reading some of it.
    pub(crate) fn read(&self) -> Effect {
        let share = self.slot.map_or(Share::Unknown, |slot| Share::Ring(slot.ring));
        Effect::Read(self.buffer, share)
    }
}

/// Bytes of a row that four threads side by side access at once; of threads that hold more than an
/// access moves, those that lie side by side.
pub(crate) fn apart(layout: &Layout, bytes: usize) -> usize {
    let run = layout.run();
    let side_by_side = layout.lanes[..2] == [run, 2 * run];
    match run * bytes {
        own @ ..=16 if side_by_side => own.max(4) * 4,
        _ => 16,
    }
}

/// Elements from a row to the next: a little more than a row, so that columns spread over banks.
/// Threads that take `apart` bytes of a row side by side, and as many of the rows after it, meet no
/// bank twice: so far are rows apart, or three times as far.
pub(crate) const fn pitch([rows, cols]: [usize; 2], bytes: usize, apart: usize) -> usize {
    if rows == 1 {
        return cols;
    }
    let mut pitch = (cols * bytes).next_multiple_of(16) + 16;
    while pitch % (2 * apart) != apart {
        pitch += 16;
    }
    pitch / bytes
}

/// Accesses that move all registers: the first element of each, its registers and its instruction.
fn groups(
    kind: &'static str,
    elem: Elem,
    layout: &Layout,
    regs: &[Reg],
) -> Vec<(usize, Operand, String)> {
    let unit = unit(elem, layout);
    let bytes = unit * exchange_bytes(elem);
    let count = (layout.run() / unit).min(16 / bytes).min(4);
    let group = |(i, regs): (usize, &[Reg])| {
        let first = i * count * unit;
        let width = bytes * 8;
        let (values, vector) = Operand::moved(regs);
        (first, values, format!("{kind}{vector}.u{width}"))
    };
    regs.chunks(count).enumerate().map(group).collect()
}
