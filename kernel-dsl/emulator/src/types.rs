//! The types of PTX operands, as far as the emulator must know them.

/// An instruction's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ty {
    Pred,
    Bits(u32),
    Unsigned(u32),
    Signed(u32),
    F16,
    F16x2,
    Bf16,
    Bf16x2,
    Tf32,
    F32,
    F32x2,
    F64,
    E4m3,
    E5m2,
    E4m3x2,
    E5m2x2,
    E2m1x2,
    E2m3x2,
    E3m2x2,
    Ue8m0x2,
    U16x2,
    S16x2,
}

impl Ty {
    /// The type that a modifier names, without its dot.
    pub(crate) fn parse(name: &str) -> Option<Ty> {
        Some(match name {
            "pred" => Ty::Pred,
            "b8" => Ty::Bits(8),
            "b16" => Ty::Bits(16),
            "b32" => Ty::Bits(32),
            "b64" => Ty::Bits(64),
            "b128" => Ty::Bits(128),
            "u8" => Ty::Unsigned(8),
            "u16" => Ty::Unsigned(16),
            "u32" => Ty::Unsigned(32),
            "u64" => Ty::Unsigned(64),
            "s8" => Ty::Signed(8),
            "s16" => Ty::Signed(16),
            "s32" => Ty::Signed(32),
            "s64" => Ty::Signed(64),
            "f16" => Ty::F16,
            "f16x2" => Ty::F16x2,
            "bf16" => Ty::Bf16,
            "bf16x2" => Ty::Bf16x2,
            "tf32" => Ty::Tf32,
            "f32" => Ty::F32,
            "f32x2" => Ty::F32x2,
            "f64" => Ty::F64,
            "e4m3" => Ty::E4m3,
            "e5m2" => Ty::E5m2,
            "e4m3x2" => Ty::E4m3x2,
            "e5m2x2" => Ty::E5m2x2,
            "e2m1x2" => Ty::E2m1x2,
            "e2m3x2" => Ty::E2m3x2,
            "e3m2x2" => Ty::E3m2x2,
            "ue8m0x2" => Ty::Ue8m0x2,
            "u16x2" => Ty::U16x2,
            "s16x2" => Ty::S16x2,
            _ => return None,
        })
    }

    /// Width in bits of a register that holds it.
    pub(crate) fn bits(self) -> u32 {
        match self {
            Ty::Pred => 1,
            Ty::Bits(n) | Ty::Unsigned(n) | Ty::Signed(n) => n,
            Ty::E4m3 | Ty::E5m2 | Ty::E2m1x2 => 8,
            Ty::F16 | Ty::Bf16 | Ty::E4m3x2 | Ty::E5m2x2 => 16,
            Ty::E2m3x2 | Ty::E3m2x2 | Ty::Ue8m0x2 => 16,
            Ty::F16x2 | Ty::Bf16x2 | Ty::Tf32 | Ty::F32 | Ty::U16x2 | Ty::S16x2 => 32,
            Ty::F32x2 | Ty::F64 => 64,
        }
    }

    /// Width in bytes in memory.
    pub(crate) fn bytes(self) -> u32 {
        self.bits().div_ceil(8)
    }

    pub(crate) fn is_signed(self) -> bool {
        matches!(self, Ty::Signed(_))
    }

    pub(crate) fn is_integer(self) -> bool {
        matches!(self, Ty::Signed(_) | Ty::Unsigned(_))
    }
}

/// The low `bits` bits set.
pub(crate) fn low_mask(bits: u32) -> u64 {
    match bits {
        0 => 0,
        bits if bits >= 64 => u64::MAX,
        bits => (1 << bits) - 1,
    }
}

/// A value of `bits` bits with its sign carried to 64.
pub(crate) fn sign_extend(value: u64, bits: u32) -> i64 {
    let shift = 64 - bits.min(64);
    ((value << shift) as i64) >> shift
}
