//! Fragments of matrix instructions from tiles in shared memory, by `ldmatrix`.
//!
//! It moves units of 16 bits: one code of as many, or two neighbours of eight. Where the tile's rows
//! run along `k`, a thread gets two units side by side. Where they run across, it gets those of two
//! rows, and codes of eight bits must change places within the register before they are pairs.

use super::Lower;
use super::codes::is_fp8;
use super::convert::{Place, exchange_bytes};
use super::operand::Form;
use super::split::PLANES;
use crate::code::{Class, Operand, Reg};
use crate::dot::SidePlan;
use crate::layout::{Layout, bits, sum};
use std::collections::HashMap;
use tessera_tile_ir::Elem;
use tessera_tile_ir::format::Element;

/// How a chunk of an operand comes by `ldmatrix`.
#[derive(Debug)]
pub(crate) struct Matrices {
    /// Whether `k` runs down the rows of the tile.
    transposed: bool,
    /// Elements that move as one.
    unit: usize,
    bytes: usize,
    /// From a pair's codes to those of the other that lie in the same register.
    second: usize,
    /// The thread's row of its matrix, and which of up to four matrices it is; and its warp.
    threads: Layout,
    /// Which matrix of an instruction, by bits.
    within: Vec<usize>,
    /// From an instruction to the next, by bits.
    between: Vec<usize>,
}

/// The two codes of a pair.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Codes {
    /// Of 16 bits each.
    Word(Reg),
    /// Of 8 bits each, a half of a register.
    Half(Reg),
}

impl Matrices {
    /// None if the chunk is not as `ldmatrix` spreads a tile of such elements.
    pub(crate) fn new(side: &SidePlan, elem: Elem) -> Option<Self> {
        let Elem::Stored(element) = elem else { return None };
        let unit = match element.bits() {
            8 if is_fp8(element) => 2,
            16 => 1,
            _ => return None,
        };
        let (layout, k, other) = (&side.chunk, side.k_step, side.other_step);
        let transposed = k != 1;
        let (own, lanes) = if transposed {
            let own: Vec<usize> = bits(unit).into_iter().chain([k]).collect();
            (own, [2 * k, 4 * k, unit, 2 * unit, 4 * unit])
        } else {
            (bits(2 * unit), [2 * unit, 4 * unit, other, 2 * other, 4 * other])
        };
        let rows = if transposed { k } else { other };
        let fits = side.pair == k
            && layout.lanes == lanes
            && own.iter().all(|step| layout.regs.contains(step))
            && (transposed || layout.cols >= 8 * unit);
        if !fits {
            return None;
        }
        let mut within: Vec<usize> =
            layout.regs.iter().copied().filter(|step| !own.contains(step)).collect();
        let between = within.split_off(within.len().min(2));
        let step = |i: usize| within.get(i).copied().unwrap_or(0);
        let threads = Layout {
            regs: Vec::new(),
            lanes: [rows, 2 * rows, 4 * rows, step(0), step(1)],
            ..layout.clone()
        };
        let second = if transposed { other } else { 2 * k };
        let bytes = exchange_bytes(elem);
        Some(Self { transposed, unit, bytes, second, threads, within, between })
    }

    /// The instruction for so many matrices.
    fn instruction(&self) -> String {
        let (count, how) = (1 << self.within.len(), if self.transposed { ".trans" } else { "" });
        format!("ldmatrix.sync.aligned.m8n8.x{count}{how}.shared.b16")
    }
}

impl Lower<'_> {
    /// Codes of all pairs of a chunk that begins `part` further in the tile's order, by the first
    /// element of each within the chunk.
    pub(crate) fn fragments(
        &mut self,
        matrices: &Matrices,
        place: Place,
        part: usize,
    ) -> HashMap<usize, Codes> {
        let Matrices { threads, within, between, bytes, .. } = matrices;
        let base = self.shared_base(threads, (place, *bytes));
        let mut pairs = HashMap::new();
        for turn in 0..1 << between.len() {
            let first = sum(between, turn);
            let [row, col] = [(part + first) / threads.cols, (part + first) % threads.cols];
            let from = Operand::at(base.clone(), place.first + (row * place.pitch + col) * bytes);
            let regs = self.code.regs(Class::B32, 1 << within.len());
            let operands = vec![Operand::vector(&regs), from];
            self.code.push_with(matrices.instruction(), operands, None, place.read());
            for (i, reg) in regs.into_iter().enumerate() {
                self.pairs_of(matrices, (first + sum(within, i), reg), &mut pairs);
            }
        }
        pairs
    }

    /// The pairs of one register of a matrix.
    fn pairs_of(
        &mut self,
        matrices: &Matrices,
        (at, reg): (usize, Reg),
        pairs: &mut HashMap<usize, Codes>,
    ) {
        if matrices.unit == 1 {
            pairs.insert(at, Codes::Word(reg));
            return;
        }
        let word = if matrices.transposed {
            // Two neighbours of one row, then of the next: to the firsts of both, then the seconds.
            let sources = [reg.into(), reg.into(), Operand::Int(0x3120)];
            self.code.op(Class::B32, "prmt.b32", sources)
        } else {
            reg
        };
        let halves = [self.code.reg(Class::B16), self.code.reg(Class::B16)];
        self.code.push("mov.b32", vec![Operand::vector(&halves), word.into()]);
        pairs.insert(at, Codes::Half(halves[0]));
        pairs.insert(at + matrices.second, Codes::Half(halves[1]));
    }

    /// A pair's planes.
    pub(crate) fn pair_of(&mut self, form: Form, codes: Codes) -> Vec<Reg> {
        match (form, codes) {
            (Form::Planes, Codes::Word(reg)) => vec![reg],
            (Form::Codes(element, _), Codes::Word(reg)) if element == Element::Bf16 => vec![reg],
            (Form::Codes(element, _), Codes::Half(half)) => vec![self.fp8_bf16(element, half)],
            (Form::Codes(element, _), Codes::Word(word)) => {
                let halves = [0, 16].map(|at| self.field(word, at, 16, 32));
                let values = halves.map(|code| self.decode_code(element, code));
                self.split(values[0], values[1], PLANES)
            }
            (Form::F32 | Form::Planes, _) => unreachable!("planes are of 16 bits"),
        }
    }
}
