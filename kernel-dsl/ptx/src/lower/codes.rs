//! Codes in registers: side by side or one each, and to and from the numbers they stand for.

use super::{Held, Lower};
use crate::code::{Class, Operand, Reg};
use crate::infer::element_bits;
use crate::layout::Layout;
use tessera_tile_ir::format::{Element, Float, FloatBits, Kind};
use tessera_tile_ir::{Elem, Op};

impl Lower<'_> {
    /// Elements one a register, codes in its low bits.
    pub(crate) fn unpacked(&mut self, elem: Elem, held: &Held) -> Vec<Reg> {
        let pack = Self::pack(elem, &held.layout);
        if pack == 1 {
            return held.regs.clone();
        }
        let bits = element_bits(elem);
        let whole = pack * bits;
        let mut single = Vec::with_capacity(held.regs.len() * pack);
        for reg in &held.regs {
            for i in 0..pack {
                single.push(self.field(*reg, i * bits, bits, whole));
            }
        }
        single
    }

    /// The code of one element of a tile.
    pub(crate) fn code_of(&mut self, elem: Elem, held: &Held, reg: usize) -> Reg {
        let (pack, bits) = (Self::pack(elem, &held.layout), element_bits(elem));
        self.field(held.regs[reg / pack], reg % pack * bits, bits, pack * bits)
    }

    /// `bits` bits of a register from `at` on; those past `whole` are zeros.
    pub(crate) fn field(&mut self, reg: Reg, at: usize, bits: usize, whole: usize) -> Reg {
        #[expect(clippy::cast_possible_wrap, reason = "bits of a register")]
        let (at, bits, whole) = (at as i64, bits as i64, whole as i64);
        match (at, at + bits == whole) {
            (0, true) => reg,
            (0, false) => {
                let mask = Operand::Int((1 << bits) - 1);
                self.code.op(Class::B32, "and.b32", [reg.into(), mask])
            }
            (_, true) => self.code.op(Class::B32, "shr.u32", [reg.into(), at.into()]),
            _ => self.code.op(Class::B32, "bfe.u32", [reg.into(), at.into(), bits.into()]),
        }
    }

    /// Codes `pack` a register from codes one a register.
    pub(crate) fn packed(&mut self, elem: Elem, single: &[Reg], pack: usize) -> Vec<Reg> {
        if pack == 1 {
            return single.to_vec();
        }
        let bits = element_bits(elem);
        single.chunks(pack).map(|codes| self.side_by_side(codes, bits)).collect()
    }

    /// Codes in one register, the first in its low bits.
    pub(crate) fn side_by_side(&mut self, codes: &[Reg], bits: usize) -> Reg {
        let mut word = codes[0];
        for (i, code) in codes.iter().enumerate().skip(1) {
            #[expect(clippy::cast_possible_wrap, reason = "bits of a register")]
            let (at, bits) = ((i * bits) as i64, bits as i64);
            let sources = [(*code).into(), word.into(), at.into(), bits.into()];
            word = self.code.op(Class::B32, "bfi.b32", sources);
        }
        word
    }

    /// A decode op in a layout.
    pub(crate) fn decode(&mut self, op: &Op, want: &Layout) -> Vec<Reg> {
        let source = op.operands[0];
        match self.elem(source) {
            Elem::Stored(element) => {
                let held = self.get(source, want);
                self.decoded(element, &held)
            }
            _ => self.decode_packed(source, want),
        }
    }

    /// Values of codes, f32, one a register.
    pub(crate) fn decoded(&mut self, element: Element, held: &Held) -> Vec<Reg> {
        let elem = Elem::Stored(element);
        if is_fp8(element) {
            return self.decode_fp8(element, held);
        }
        let single = self.unpacked(elem, held);
        single.into_iter().map(|code| self.decode_code(element, code)).collect()
    }

    /// The value of a code in the low bits of a register.
    pub(crate) fn decode_code(&mut self, element: Element, code: Reg) -> Reg {
        match element.format().kind {
            Kind::F32 => code,
            Kind::Int { bias } => {
                let number = if bias == 0 {
                    code
                } else {
                    self.code.op(Class::B32, "sub.s32", [code.into(), i64::from(bias).into()])
                };
                self.code.op(Class::B32, "cvt.rn.f32.s32", [number.into()])
            }
            Kind::Float(_) if element.name() == "f16" => {
                let half = self.code.op(Class::B16, "cvt.u16.u32", [code.into()]);
                self.code.op(Class::B32, "cvt.f32.f16", [half.into()])
            }
            // The upper half of an f32.
            Kind::Float(_) if element == Element::Bf16 => {
                self.code.op(Class::B32, "shl.b32", [code.into(), 16.into()])
            }
            Kind::Float(_) if is_fp8(element) => {
                let codes = self.code.op(Class::B16, "cvt.u16.u32", [code.into()]);
                let [half, _] = self.fp8_halves(element, codes);
                self.code.op(Class::B32, "cvt.f32.f16", [half.into()])
            }
            Kind::Float(float) => self.decode_bits(&float.bits_rule(), code),
        }
    }

    /// Follows [`FloatBits::decode`].
    pub(crate) fn decode_bits(&mut self, rule: &FloatBits, code: Reg) -> Reg {
        if let Some(shift) = upper_part(rule) {
            return self.code.op(Class::B32, "shl.b32", [code.into(), shift.into()]);
        }
        let magnitude = i64::from(rule.magnitude_mask);
        let stored = self.code.op(Class::B32, "and.b32", [code.into(), magnitude.into()]);
        let mut value = stored;
        if rule.magnitude_shift > 0 {
            let by = i64::from(rule.magnitude_shift).into();
            value = self.code.op(Class::B32, "shl.b32", [value.into(), by]);
        }
        if rule.floor > 0 {
            let floor = i64::from(rule.floor).into();
            value = self.code.op(Class::B32, "max.u32", [value.into(), floor]);
        }
        if rule.multiplier.to_bits() != 1.0_f32.to_bits() {
            let sources = [value.into(), rule.multiplier.into()];
            value = self.code.op(Class::B32, "mul.rn.f32", sources);
        }
        if let Some(special) = rule.special {
            let nan: Operand = Operand::Int(0x7fc0_0000);
            let above = i64::from(special.above).into();
            let past = self.code.op(Class::Pred, "setp.gt.u32", [stored.into(), above]);
            value = self.code.op(Class::B32, "selp.b32", [nan, value.into(), past.into()]);
            if let Some(inf) = special.inf {
                let test = [stored.into(), i64::from(inf).into()];
                let is_inf = self.code.op(Class::Pred, "setp.eq.u32", test);
                let sources = [Operand::Int(0x7f80_0000), value.into(), is_inf.into()];
                value = self.code.op(Class::B32, "selp.b32", sources);
            }
        }
        if rule.sign_mask == 0 {
            return value;
        }
        let sign = i64::from(rule.sign_mask).into();
        let sign = self.code.op(Class::B32, "and.b32", [code.into(), sign]);
        let sign = match rule.sign_shift {
            0 => sign,
            by => self.code.op(Class::B32, "shl.b32", [sign.into(), i64::from(by).into()]),
        };
        self.code.op(Class::B32, "or.b32", [sign.into(), value.into()])
    }

    fn decode_fp8(&mut self, element: Element, held: &Held) -> Vec<Reg> {
        let pack = Self::pack(Elem::Stored(element), &held.layout);
        let mut values = Vec::new();
        for reg in &held.regs {
            for pair in 0..pack.div_ceil(2) {
                let halves = self.fp8_pair(element, *reg, pair);
                let both = pack.min(2);
                for half in halves.into_iter().take(both) {
                    values.push(self.code.op(Class::B32, "cvt.f32.f16", [half.into()]));
                }
            }
        }
        values
    }

    /// Two neighbouring codes of a register as f16.
    fn fp8_pair(&mut self, element: Element, reg: Reg, pair: usize) -> [Reg; 2] {
        let word = self.field(reg, pair * 16, 16, if pair == 0 { 32 } else { 16 * (pair + 1) });
        let codes = self.code.op(Class::B16, "cvt.u16.u32", [word.into()]);
        self.fp8_halves(element, codes)
    }

    /// Two codes of eight bits as f16.
    pub(crate) fn fp8_halves(&mut self, element: Element, codes: Reg) -> [Reg; 2] {
        let op = match element.name() {
            "e4m3" => "cvt.rn.f16x2.e4m3x2",
            _ => "cvt.rn.f16x2.e5m2x2",
        };
        let both = self.code.op(Class::B32, op, [codes.into()]);
        let halves = [self.code.reg(Class::B16), self.code.reg(Class::B16)];
        self.code.push("mov.b32", vec![Operand::vector(&halves), both.into()]);
        halves
    }

    /// Codes of f32 values, one a register: nearest, ties to even, saturating.
    pub(crate) fn encode_code(&mut self, element: Element, value: Reg) -> Reg {
        match element.format().kind {
            Kind::F32 => value,
            Kind::Int { bias } => self.encode_int(element, bias, value),
            Kind::Float(float) => self.encode_float(&float, value),
        }
    }

    /// The nearest integer, within the codes; NaN to zero.
    fn encode_int(&mut self, element: Element, bias: u32, value: Reg) -> Reg {
        let number = self.code.op(Class::B32, "cvt.rni.s32.f32", [value.into()]);
        let limits = [element.decode(0), element.max()];
        #[expect(clippy::cast_possible_truncation, reason = "codes have at most 16 bits")]
        let [low, high] = limits.map(|limit| limit as i64);
        let number = self.code.op(Class::B32, "max.s32", [number.into(), low.into()]);
        let number = self.code.op(Class::B32, "min.s32", [number.into(), high.into()]);
        self.code.op(Class::B32, "add.s32", [number.into(), i64::from(bias).into()])
    }

    /// Follows `Float::encode` of the format's declaration, in integers.
    fn encode_float(&mut self, float: &Float, value: Reg) -> Reg {
        let int = |value: u32| Operand::Int(i64::from(value));
        let sign_shift = float.exp + float.man;
        let bits = self.code.op(Class::B32, "and.b32", [value.into(), int(0x7fff_ffff)]);
        let shift = 23 - float.man;
        // Normal codes: round the mantissa, rebase the exponent.
        let odd = self.code.op(Class::B32, "bfe.u32", [bits.into(), int(shift), 1.into()]);
        let half = int((1 << (shift - 1)) - 1);
        let rounded = self.code.op(Class::B32, "add.u32", [bits.into(), half]);
        let rounded = self.code.op(Class::B32, "add.u32", [rounded.into(), odd.into()]);
        let normal = self.code.op(Class::B32, "shr.u32", [rounded.into(), int(shift)]);
        let rebase = int((127 - float.bias) << float.man);
        let normal = self.code.op(Class::B32, "sub.s32", [normal.into(), rebase]);
        let min_normal = (128 - float.bias) << 23;
        let mut magnitude = normal;
        if min_normal > 1 << 23 {
            // Subnormal codes count quanta: scaled to whole ones, exactly, and rounded by 2^23.
            let quantum = f32::from_bits((127 + float.bias + float.man - 1) << 23);
            let whole = 8_388_608.0_f32;
            let sources = [bits.into(), quantum.into(), whole.into()];
            let quanta = self.code.op(Class::B32, "fma.rn.f32", sources);
            let count = self.code.op(Class::B32, "and.b32", [quanta.into(), int(0x007f_ffff)]);
            let is_normal =
                self.code.op(Class::Pred, "setp.ge.u32", [bits.into(), int(min_normal)]);
            let sources = [normal.into(), count.into(), is_normal.into()];
            magnitude = self.code.op(Class::B32, "selp.b32", sources);
        }
        magnitude = self.code.op(Class::B32, "min.u32", [magnitude.into(), int(float.max)]);
        let nan = self.code.op(Class::Pred, "setp.gt.u32", [bits.into(), int(0x7f80_0000)]);
        let nan_code = int(float.nan.unwrap_or(0));
        magnitude = self.code.op(Class::B32, "selp.b32", [nan_code, magnitude.into(), nan.into()]);
        let sign = self.code.op(Class::B32, "shr.u32", [value.into(), 31.into()]);
        let sign = self.code.op(Class::B32, "shl.b32", [sign.into(), int(sign_shift)]);
        if float.nan.is_none() {
            // NaN is zero where there is none, without a sign.
            let sources = [Operand::Int(0), sign.into(), nan.into()];
            let sign = self.code.op(Class::B32, "selp.b32", sources);
            return self.code.op(Class::B32, "or.b32", [magnitude.into(), sign.into()]);
        }
        self.code.op(Class::B32, "or.b32", [magnitude.into(), sign.into()])
    }
}

/// By how many bits a code must move to be the upper part of the f32 that it stands for, if that is
/// all it takes.
fn upper_part(rule: &FloatBits) -> Option<i64> {
    let shift = rule.magnitude_shift;
    let whole = rule.sign_mask | rule.magnitude_mask == u32::MAX >> shift;
    let plain = rule.multiplier.to_bits() == 1.0_f32.to_bits() && rule.floor == 0;
    let moves = shift > 0 && rule.sign_shift == shift && whole && plain && rule.special.is_none();
    moves.then_some(i64::from(shift))
}

pub(crate) fn is_fp8(element: Element) -> bool {
    matches!(element.name(), "e4m3" | "e5m2")
}
