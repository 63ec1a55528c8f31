//! Numbers as pairs of bfloat16, in as many planes as it takes to hold every bit of them.
//!
//! A code of a small format is exact in one plane. An f32 is the sum of three: each takes the
//! leading bits of what the ones before left. So a dot of f32 keeps the accuracy of f32, and the
//! range, which half precision would not.

use super::codes::is_fp8;
use super::{Held, Lower};
use crate::code::{Class, Operand, Reg};
use tessera_tile_ir::Elem;
use tessera_tile_ir::format::{Element, Float, Kind};

/// Planes that hold every bit of an f32.
pub(crate) const PLANES: usize = 3;

impl Lower<'_> {
    /// Two f32 as planes of bfloat16.
    pub(crate) fn split(&mut self, first: Reg, second: Reg, planes: usize) -> Vec<Reg> {
        let mut rest = [first, second];
        let mut regs = Vec::new();
        for plane in 0..planes {
            let pair = self.bf16_pair(rest[0], rest[1]);
            regs.push(pair);
            if plane + 1 == planes {
                break;
            }
            let taken = self.bf16_values(pair);
            for (rest, taken) in rest.iter_mut().zip(taken) {
                let sources = [(*rest).into(), taken.into()];
                *rest = self.code.op(Class::B32, "sub.rn.f32", sources);
            }
        }
        regs
    }

    /// Two f32 rounded to bfloat16, the first in the low half.
    pub(crate) fn bf16_pair(&mut self, first: Reg, second: Reg) -> Reg {
        self.code.op(Class::B32, "cvt.rn.bf16x2.f32", [second.into(), first.into()])
    }

    fn bf16_values(&mut self, pair: Reg) -> [Reg; 2] {
        let first = self.code.op(Class::B32, "shl.b32", [pair.into(), 16.into()]);
        let mask = Operand::Int(0xffff_0000);
        let second = self.code.op(Class::B32, "and.b32", [pair.into(), mask]);
        [first, second]
    }

    /// The values of two codes, exact; `zero` is a pair of `128 + zero point` to take off instead
    /// of the codes' own.
    pub(crate) fn code_pair(
        &mut self,
        (element, elem): (Element, Elem),
        held: &Held,
        at: [usize; 2],
        zero: Option<Reg>,
    ) -> Reg {
        let pack = Self::pack(elem, &held.layout);
        let bits = element.bits();
        let place = at.map(|reg| (held.regs[reg / pack], reg % pack * bits));
        let same = place[0].0 == place[1].0;
        let distance = place[1].1.wrapping_sub(place[0].1);
        match element.format().kind {
            Kind::Float(_) if element == Element::Bf16 && same && distance == 16 => place[0].0,
            // They are bfloat16 already: two bytes of each.
            Kind::Float(_) if element == Element::Bf16 => {
                #[expect(clippy::cast_possible_wrap, reason = "a byte of a register")]
                let [a, b] = place.map(|(_, shift)| shift as i64 / 8);
                let bytes = a | (a + 1) << 4 | (b + 4) << 8 | (b + 5) << 12;
                let sources = [place[0].0.into(), place[1].0.into(), bytes.into()];
                self.code.op(Class::B32, "prmt.b32", sources)
            }
            Kind::Int { bias } if bits == 4 => {
                self.nibble_pair(place, same && distance == 16, (bias, zero))
            }
            _ if is_fp8(element) => self.fp8_bf16_pair(element, place, same && distance == 8),
            Kind::Float(float) if is_all_numbers(&float) => {
                self.float_pair(&float, place, same && distance == 16)
            }
            _ => {
                let values = place.map(|(reg, shift)| {
                    let code = self.field(reg, shift, bits, pack * bits);
                    self.decode_code(element, code)
                });
                self.bf16_pair(values[0], values[1])
            }
        }
    }

    /// Integers of four bits: put into the mantissa of 128, whose last bit counts ones.
    fn nibble_pair(
        &mut self,
        place: [(Reg, usize); 2],
        apart: bool,
        (bias, zero): (u32, Option<Reg>),
    ) -> Reg {
        let (word, at) = self.halves(place, apart);
        let word = self.moved(word, -at);
        // `word & mask | exponent`.
        let sources =
            [word.into(), Operand::Int(0x000f_000f), Operand::Int(0x4300_4300), Operand::Int(0xea)];
        let lifted = self.code.op(Class::B32, "lop3.b32", sources);
        let zero = match zero {
            Some(zero) => zero,
            None => {
                let both = 0x4300_4300 + i64::from(bias) * 0x0001_0001;
                self.code.op(Class::B32, "mov.b32", [both.into()])
            }
        };
        self.code.op(Class::B32, "sub.rn.bf16x2", [lifted.into(), zero.into()])
    }

    /// Small floats without NaN and infinity: moved to where bfloat16 has its fields, and multiplied
    /// by what makes up for the difference of the biases, which is exact, subnormals included.
    fn float_pair(&mut self, float: &Float, place: [(Reg, usize); 2], apart: bool) -> Reg {
        const BOTH: i64 = 0x0001_0001;
        let (word, at) = self.halves(place, apart);
        let (size, up) = (float.exp + float.man, 7 - i64::from(float.man));
        let magnitude = self.moved(word, up - at);
        let mask = Operand::Int((((1 << size) - 1) << up) * BOTH);
        let magnitude = self.code.op(Class::B32, "and.b32", [magnitude.into(), mask]);
        let sign = self.moved(word, 15 - i64::from(size) - at);
        // `sign & mask | magnitude`.
        let mask = Operand::Int(0x8000 * BOTH);
        let sources = [sign.into(), mask, magnitude.into(), Operand::Int(0xea)];
        let fields = self.code.op(Class::B32, "lop3.b32", sources);
        let factor = Operand::Int(((254 - i64::from(float.bias)) << 7) * BOTH);
        let factor = self.code.op(Class::B32, "mov.b32", [factor]);
        self.code.op(Class::B32, "mul.rn.bf16x2", [fields.into(), factor.into()])
    }

    /// Two codes in the halves of a register, at a bit of each; other bits are anything.
    fn halves(&mut self, place: [(Reg, usize); 2], apart: bool) -> (Reg, i64) {
        #[expect(clippy::cast_possible_wrap, reason = "bits of a register")]
        let shifts = place.map(|(_, shift)| shift as i64);
        if apart {
            return (place[0].0, shifts[0]);
        }
        if shifts[0] % 8 == shifts[1] % 8 {
            let [a, b] = shifts.map(|shift| shift / 8);
            // Of each its byte, twice.
            let bytes = a | a << 4 | (b + 4) << 8 | (b + 4) << 12;
            let sources = [place[0].0.into(), place[1].0.into(), bytes.into()];
            return (self.code.op(Class::B32, "prmt.b32", sources), shifts[0] % 8);
        }
        let [first, second] = [0, 1].map(|i| self.moved(place[i].0, -shifts[i]));
        let upper = self.moved(second, 16);
        // `first & mask | upper & !mask`: the low half of one, the upper of the other.
        let sources = [first.into(), upper.into(), Operand::Int(0xffff), Operand::Int(0xe4)];
        (self.code.op(Class::B32, "lop3.b32", sources), 0)
    }

    /// A register's bits so many places up, or down.
    fn moved(&mut self, reg: Reg, by: i64) -> Reg {
        match by {
            0 => reg,
            1.. => self.code.op(Class::B32, "shl.b32", [reg.into(), by.into()]),
            _ => self.code.op(Class::B32, "shr.u32", [reg.into(), (-by).into()]),
        }
    }

    fn fp8_bf16_pair(&mut self, element: Element, place: [(Reg, usize); 2], apart: bool) -> Reg {
        let word = if apart {
            self.field(place[0].0, place[0].1, 16, 32)
        } else {
            #[expect(clippy::cast_possible_wrap, reason = "a byte of a register")]
            let [a, b] = place.map(|(_, shift)| shift as i64 / 8);
            let sources = [place[0].0.into(), place[1].0.into(), (a | (4 + b) << 4).into()];
            self.code.op(Class::B32, "prmt.b32", sources)
        };
        let codes = self.code.op(Class::B16, "cvt.u16.u32", [word.into()]);
        self.fp8_bf16(element, codes)
    }

    /// Two codes of eight bits as bfloat16, by way of f16, which holds them all.
    ///
    /// Four machine instructions. Moving bits into place and multiplying by a power of two takes as
    /// many, and reads the NaN of e4m3, and what e5m2 has beyond its numbers, as numbers.
    pub(crate) fn fp8_bf16(&mut self, element: Element, codes: Reg) -> Reg {
        let halves = self.fp8_halves(element, codes);
        let values = halves.map(|half| self.code.op(Class::B32, "cvt.f32.f16", [half.into()]));
        self.bf16_pair(values[0], values[1])
    }
}

/// Whether every code is a number.
fn is_all_numbers(float: &Float) -> bool {
    float.man <= 7 && float.exp < 8 && float.max == (1 << (float.exp + float.man)) - 1
}

/// Whether bfloat16 holds every value.
pub(crate) fn is_exact(element: Element) -> bool {
    match element.format().kind {
        Kind::F32 => false,
        Kind::Int { .. } => element.bits() <= 8,
        Kind::Float(float) => float.man <= 7,
    }
}
