//! Operands of dots on their way to matrix instructions.
//!
//! A tile that only dots read is not kept in registers. It stays in memory, global or shared, and is
//! taken a chunk of `k` at a time; what passes through shared memory does so in the form that
//! instructions take, so that it is made once and not by every warp.

use super::convert::{Place, apart, exchange_bytes, pitch};
use super::fragment::{Codes, Matrices};
use super::packed::PackedWindow;
use super::split::{PLANES, is_exact};
use super::warpgroup::Cores;
use super::{Held, Lower, Made};
use crate::code::{Buffer, Reg};
use crate::dot::SidePlan;
use crate::layout::Layout;
use std::collections::HashMap;
use tessera_tile_ir::format::Element;
use tessera_tile_ir::op::OpKind;
use tessera_tile_ir::{Elem, Value};

/// The elements that planes in shared memory have.
const PLANE: Elem = Elem::Stored(Element::Bf16);

/// Bytes of a row that `ldmatrix` takes at once.
pub(crate) const MATRIX_ROW: usize = 16;

/// How elements become pairs of bfloat16.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// Numbers, to be split.
    F32,
    /// Codes that stand for themselves; and how they lie in registers.
    Codes(Element, Elem),
    /// Planes of bfloat16.
    Planes,
}

/// Where an operand is.
#[derive(Debug, Clone)]
pub(crate) enum Source {
    /// In the registers of the threads that want it.
    Registers(Held),
    /// In global memory: a load whose only reader is the dot.
    Load(Value),
    /// In global memory: part of a weight, with its scales or without.
    Window { window: PackedWindow, value: Value, scaled: bool },
    /// In shared memory, a place a plane.
    Shared(Vec<Place>, Elem),
    /// In shared memory, as instructions of four warps read it.
    Cores(Cores),
}

/// An operand of a dot: a tile, its place, and which thread takes what.
#[derive(Debug, Clone)]
pub(crate) struct Input {
    pub(crate) source: Source,
    pub(crate) form: Form,
    pub(crate) side: SidePlan,
}

/// A chunk of an operand in registers.
#[derive(Debug)]
pub(crate) struct Chunk {
    planes: Vec<Held>,
    /// The codes of its pairs, a plane each, by the first element of a pair: where it came in
    /// fragments.
    codes: Vec<HashMap<usize, Codes>>,
    form: Form,
    side: SidePlan,
    /// Pairs that were made, by their first element.
    pairs: HashMap<usize, Vec<Reg>>,
    /// For each row, what to take off codes of four bits instead of their own bias.
    pub(crate) zeros: HashMap<usize, Reg>,
}

impl Lower<'_> {
    /// A value as an operand of a dot.
    pub(crate) fn input(&mut self, value: Value, side: &SidePlan) -> Input {
        let key = (value, side.clone());
        if let Some(known) = self.inputs.get(&key) {
            return known.clone();
        }
        let input = self.make_input(value, side);
        self.inputs.insert(key, input.clone());
        let region = self.made.last_mut().expect("a region is open");
        region.push(Made::Input(value, Box::new(side.clone())));
        input
    }

    fn make_input(&mut self, value: Value, side: &SidePlan) -> Input {
        let op = self.op_of(value);
        match op.map(|op| (&op.kind, op.operands.as_slice())) {
            Some((OpKind::Transpose, [source])) => {
                return self.input(*source, &side.transposed());
            }
            _ if side.cores.is_some() => return self.core_input(value, side),
            Some((OpKind::Decode, [source])) => match self.elem(*source) {
                Elem::Stored(element) => {
                    let form = Form::Codes(element, Elem::Stored(element));
                    return self.placed(*source, form, side);
                }
                Elem::Packed(format) => {
                    if let Some(window) = self.packed_window(*source) {
                        let element = format.element;
                        let scaled = format.scale_tile.is_some() || !is_exact(element);
                        let form = match scaled {
                            true => Form::F32,
                            false => Form::Codes(element, Elem::Packed(format)),
                        };
                        let source = Source::Window { window, value: *source, scaled };
                        return Input { source, form, side: side.clone() };
                    }
                }
                _ => {}
            },
            _ => {}
        }
        self.placed(value, Form::F32, side)
    }

    /// Finds the cheapest place that a tile can be taken from.
    fn placed(&mut self, value: Value, form: Form, side: &SidePlan) -> Input {
        let side = side.clone();
        if self.layouts.deferred.contains(&value) {
            return Input { source: Source::Load(value), form, side };
        }
        // Numbers that several warps take are split once, and not by each.
        let split_by_many = matches!(form, Form::F32) && side.layout.copy_bits().1 != 0;
        if let Some(place) = self.staged.get(&value).filter(|_| !split_by_many) {
            let source = Source::Shared(vec![*place], self.elem(value));
            return Input { source, form, side };
        }
        let held = self.natural(value);
        if held.layout.lanes == side.layout.lanes && held.layout.warps == side.layout.warps {
            let held = self.get(value, &side.layout);
            return Input { source: Source::Registers(held), form, side };
        }
        match form {
            Form::F32 => {
                let planes = self.planes_of(&held);
                let source = self.share_planes(&planes, &side);
                Input { source, form: Form::Planes, side }
            }
            form => {
                let elem = self.elem(value);
                let place = self.share_tile(elem, &held, reach(&side, elem));
                Input { source: Source::Shared(vec![place], elem), form, side }
            }
        }
    }

    /// Planes of numbers, in the layout that the numbers have.
    fn planes_of(&mut self, held: &Held) -> Vec<Held> {
        let mut planes = vec![Vec::new(); PLANES];
        let pack = Self::pack(PLANE, &held.layout);
        for numbers in held.regs.chunks(pack) {
            let (first, second) = (numbers[0], *numbers.last().expect("a chunk has a number"));
            let parts = self.split(first, second, PLANES);
            planes.iter_mut().zip(parts).for_each(|(plane, part)| plane.push(part));
        }
        planes.into_iter().map(|regs| Held { layout: held.layout.clone(), regs }).collect()
    }

    /// Puts planes of numbers into shared memory, for that side of a dot.
    pub(crate) fn share_planes(&mut self, planes: &[Held], side: &SidePlan) -> Source {
        let reach = reach(side, PLANE);
        let places = planes.iter().map(|plane| self.share_tile(PLANE, plane, reach)).collect();
        Source::Shared(places, PLANE)
    }

    /// Gives a tile a place of its own in shared memory, and writes it there; threads side by side
    /// will take `reach` bytes of a row.
    pub(crate) fn share_tile(&mut self, elem: Elem, held: &Held, reach: usize) -> Place {
        let place = self.stage(elem, [held.layout.rows, held.layout.cols], reach);
        self.write_shared(elem, held, place, 0);
        place
    }

    /// A place of its own for a tile of which threads side by side take `reach` bytes of a row.
    pub(crate) fn stage(&mut self, elem: Elem, [rows, cols]: [usize; 2], reach: usize) -> Place {
        let bytes = exchange_bytes(elem);
        let pitch = pitch([rows, cols], bytes, reach);
        let first = self.stage_bytes;
        self.stage_bytes = (first + rows * pitch * bytes).next_multiple_of(16);
        let buffer = Buffer::Stage(self.stages);
        self.stages += 1;
        Place { buffer, first, pitch, slot: None }
    }

    /// The chunk of an operand that begins at `k`.
    pub(crate) fn chunk(&mut self, input: &Input, k: usize) -> Chunk {
        let Input { source, form, side } = input;
        let part = k * side.k_step;
        let layout = &side.chunk;
        let mut codes = Vec::new();
        let planes = match source {
            Source::Shared(places, elem) if let Some(matrices) = Matrices::new(side, *elem) => {
                for place in places {
                    codes.push(self.fragments(&matrices, *place, part));
                }
                Vec::new()
            }
            Source::Registers(held) => vec![self.part_of(held, *form, layout, part)],
            Source::Load(value) => {
                let op = self.op_of(*value).expect("a load is an op");
                vec![Held { layout: layout.clone(), regs: self.load_part(op, layout, part) }]
            }
            Source::Window { window, value, scaled } => {
                let window = self.shifted(window, [part / layout.cols, part % layout.cols]);
                let held = self.window_codes(&window, layout);
                vec![match scaled {
                    false => held,
                    true => {
                        let regs = self.decode_window(&window, self.elem(*value), &held);
                        Held { layout: layout.clone(), regs }
                    }
                }]
            }
            Source::Shared(places, elem) => {
                let mut planes = Vec::new();
                for place in places {
                    let regs = self.read_shared(*elem, layout, *place, part);
                    planes.push(Held { layout: layout.clone(), regs });
                }
                planes
            }
            Source::Cores(_) => unreachable!("instructions read it where it is"),
        };
        Chunk {
            planes,
            codes,
            form: *form,
            side: side.clone(),
            pairs: HashMap::new(),
            zeros: HashMap::new(),
        }
    }

    /// Some of the registers of a tile.
    fn part_of(&mut self, held: &Held, form: Form, layout: &Layout, part: usize) -> Held {
        let elem = match form {
            Form::Codes(_, elem) => elem,
            Form::F32 | Form::Planes => Elem::F32,
        };
        let single = self.unpacked(elem, held);
        let all: Vec<usize> = (0..single.len()).map(|reg| held.layout.reg_part(reg)).collect();
        let regs: Vec<Reg> = (0..layout.num_regs())
            .map(|reg| {
                let index = layout.reg_part(reg) + part;
                single[all.iter().position(|known| *known == index).expect("it is held")]
            })
            .collect();
        let regs = self.packed(elem, &regs, Self::pack(elem, layout));
        Held { layout: layout.clone(), regs }
    }

    /// The pair that begins at an index along `k` of a chunk, and at one along the other axis: a
    /// register a plane.
    pub(crate) fn pair(&mut self, chunk: &mut Chunk, k: usize, other: usize) -> Vec<Reg> {
        let side = &chunk.side;
        let part = k * side.k_step + other * side.other_step;
        if let Some(known) = chunk.pairs.get(&part) {
            return known.clone();
        }
        if !chunk.codes.is_empty() {
            let codes = chunk.codes.iter().map(|plane| plane[&part]);
            let regs: Vec<Reg> = codes.flat_map(|codes| self.pair_of(chunk.form, codes)).collect();
            chunk.pairs.insert(part, regs.clone());
            return regs;
        }
        let layout = &side.chunk;
        let find = |part: usize| {
            let mut regs = 0..layout.num_regs();
            regs.find(|reg| layout.reg_part(*reg) == part).expect("the chunk holds it")
        };
        let at = [find(part), find(part + side.pair)];
        let regs = match chunk.form {
            Form::F32 => {
                let [first, second] = at.map(|reg| chunk.planes[0].regs[reg]);
                self.split(first, second, PLANES)
            }
            Form::Codes(element, elem) if is_exact(element) => {
                let zero = chunk.zeros.get(&other).copied();
                vec![self.code_pair((element, elem), &chunk.planes[0], at, zero)]
            }
            Form::Codes(element, elem) => {
                let values = at.map(|reg| {
                    let code = self.code_of(elem, &chunk.planes[0], reg);
                    self.decode_code(element, code)
                });
                self.split(values[0], values[1], PLANES)
            }
            Form::Planes => chunk
                .planes
                .iter()
                .map(|plane| self.code_pair((Element::Bf16, PLANE), plane, at, None))
                .collect(),
        };
        chunk.pairs.insert(part, regs.clone());
        regs
    }
}

/// Bytes of a row that threads side by side take of a tile.
fn reach(side: &SidePlan, elem: Elem) -> usize {
    match Matrices::new(side, elem) {
        Some(_) => MATRIX_ROW,
        None => apart(&side.chunk, exchange_bytes(elem)),
    }
}

impl Chunk {
    /// Planes of its pairs.
    pub(crate) fn num_planes(&self) -> usize {
        match self.form {
            Form::Planes => self.planes.len().max(self.codes.len()),
            Form::Codes(element, _) if is_exact(element) => 1,
            Form::F32 | Form::Codes(..) => PLANES,
        }
    }
}
