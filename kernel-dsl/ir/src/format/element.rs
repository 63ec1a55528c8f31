//! Elements: which value each code of a stored number stands for, and which code a value gets.
//!
//! One policy for every element (ADR 0003): round half to even; saturate to the largest finite
//! value, infinities included; NaN to the element's NaN code. An element without a NaN code
//! cannot hold NaN: callers refuse it before they encode.

/// A stored number: how many bits, and which value each code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE binary32. Encoding changes nothing, so infinities stay.
    F32,
    /// IEEE binary16.
    F16,
    /// The upper half of binary32.
    Bf16,
    /// OCP FP8 E4M3: no infinity, one NaN code a sign, largest value 448.
    F8E4M3,
    /// OCP FP8 E5M2: IEEE-like, largest value 57344.
    F8E5M2,
    /// OCP FP4 E2M1: no infinity, no NaN, largest value 6.
    F4E2M1,
    /// Four-bit integer `q` in -8..=7, stored as the code `q + 8`.
    I4,
}

/// Fields of a small float, all that tells one from another.
pub(super) struct Layout {
    pub(super) exp_bits: u32,
    pub(super) man_bits: u32,
    /// Codes (without sign) above this stand for infinity or NaN.
    pub(super) max_code: u32,
    /// Code (without sign) of infinity, if there is one.
    pub(super) inf: Option<u32>,
    /// Code (without sign) that NaN encodes to, if there is one.
    pub(super) nan: Option<u32>,
}

const F16: Layout =
    Layout { exp_bits: 5, man_bits: 10, max_code: 0x7bff, inf: Some(0x7c00), nan: Some(0x7e00) };
const BF16: Layout =
    Layout { exp_bits: 8, man_bits: 7, max_code: 0x7f7f, inf: Some(0x7f80), nan: Some(0x7fc0) };
const E4M3: Layout =
    Layout { exp_bits: 4, man_bits: 3, max_code: 0x7e, inf: None, nan: Some(0x7f) };
const E5M2: Layout =
    Layout { exp_bits: 5, man_bits: 2, max_code: 0x7b, inf: Some(0x7c), nan: Some(0x7e) };
const E2M1: Layout = Layout { exp_bits: 2, man_bits: 1, max_code: 7, inf: None, nan: None };

/// Value of every E4M3 code.
static E4M3_VALUES: [f32; 256] = E4M3.table();
/// Value of every E5M2 code.
static E5M2_VALUES: [f32; 256] = E5M2.table();
/// Value of every E2M1 code.
static E2M1_VALUES: [f32; 16] = E2M1.table();
/// Value of every four-bit integer code.
static I4_VALUES: [f32; 16] =
    [-8.0, -7.0, -6.0, -5.0, -4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0];

impl Layout {
    const fn bias(&self) -> u32 {
        (1 << (self.exp_bits - 1)) - 1
    }

    const fn sign_shift(&self) -> u32 {
        self.exp_bits + self.man_bits
    }

    /// The value of a code, put together from bits: exact, and no branch on common codes but one.
    #[inline]
    const fn decode(&self, code: u32) -> f32 {
        let sign = (code >> self.sign_shift() & 1) << 31;
        let magnitude = code & ((1 << self.sign_shift()) - 1);
        if magnitude > self.max_code {
            let is_inf = matches!(self.inf, Some(inf) if inf == magnitude);
            return f32::from_bits(sign | if is_inf { 0x7f80_0000 } else { 0x7fc0_0000 });
        }
        let shift = 23 - self.man_bits;
        if magnitude >> self.man_bits != 0 {
            return f32::from_bits(sign | ((magnitude << shift) + ((127 - self.bias()) << 23)));
        }
        // Subnormal: a whole number of quanta, and a power of two times a small integer is exact.
        let quantum = f32::from_bits((128 - self.bias() - self.man_bits) << 23);
        f32::from_bits(sign | (magnitude as f32 * quantum).to_bits())
    }

    /// The code of the nearest value, half to even, saturating. NaN becomes zero where the element
    /// has no NaN.
    #[inline]
    fn encode(&self, value: f32) -> u32 {
        let bits = value.to_bits();
        let sign = (bits >> 31) << self.sign_shift();
        let bits = bits & 0x7fff_ffff;
        if bits > 0x7f80_0000 {
            return self.nan.map_or(0, |nan| nan | sign);
        }
        let shift = 23 - self.man_bits;
        let min_normal = (128 - self.bias()) << 23;
        let magnitude = if bits >= min_normal {
            let rounded = bits + (1 << (shift - 1)) - 1 + (bits >> shift & 1);
            (rounded >> shift) - ((127 - self.bias()) << self.man_bits)
        } else {
            // In units of the quantum, plus 2^52: an f64 that large has its last bit at 1, so the
            // addition rounds half to even to whole quanta and leaves their count in the low bits.
            let scale = u64::from(1023 + self.bias() + self.man_bits - 1);
            let quanta = f64::from(f32::from_bits(bits)) * f64::from_bits(scale << 52)
                + f64::from_bits(0x4330 << 48);
            low_half(quanta.to_bits())
        };
        magnitude.min(self.max_code) | sign
    }

    const fn table<const N: usize>(&self) -> [f32; N] {
        let mut values = [0.0; N];
        let mut code = 0;
        while code < N {
            #[expect(clippy::cast_possible_truncation, reason = "N is 16 or 256")]
            let small = code as u32;
            values[code] = self.decode(small);
            code += 1;
        }
        values
    }
}

#[expect(clippy::cast_possible_truncation, reason = "keeps the low half on purpose")]
const fn low_half(bits: u64) -> u32 {
    bits as u32
}

impl Element {
    /// Name in kernels, manifests and generated code.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F8E4M3 => "e4m3",
            Self::F8E5M2 => "e5m2",
            Self::F4E2M1 => "e2m1",
            Self::I4 => "i4",
        }
    }

    /// Bits of one element.
    pub const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::F8E4M3 | Self::F8E5M2 => 8,
            Self::F4E2M1 | Self::I4 => 4,
        }
    }

    /// Largest finite value, where encoding saturates. The smallest is its negation, except for
    /// [`Element::I4`], which reaches -8.
    pub const fn max(self) -> f32 {
        match self.layout() {
            Some(layout) => layout.decode(layout.max_code),
            None => match self {
                Self::I4 => 7.0,
                _ => f32::MAX,
            },
        }
    }

    /// Whether some code stands for NaN.
    pub const fn has_nan(self) -> bool {
        match self.layout() {
            Some(layout) => layout.nan.is_some(),
            None => matches!(self, Self::F32),
        }
    }

    /// The fields of a small float; `None` for the elements that are not one.
    pub(super) const fn layout(self) -> Option<&'static Layout> {
        match self {
            Self::F16 => Some(&F16),
            Self::Bf16 => Some(&BF16),
            Self::F8E4M3 => Some(&E4M3),
            Self::F8E5M2 => Some(&E5M2),
            Self::F4E2M1 => Some(&E2M1),
            Self::F32 | Self::I4 => None,
        }
    }

    /// The value a code stands for. Bits of `code` above [`Element::bits`] are ignored.
    #[inline]
    pub fn decode(self, code: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(code),
            Self::Bf16 => f32::from_bits(code << 16),
            Self::F16 => F16.decode(code),
            Self::F8E4M3 => E4M3_VALUES[(code & 255) as usize],
            Self::F8E5M2 => E5M2_VALUES[(code & 255) as usize],
            Self::F4E2M1 => E2M1_VALUES[(code & 15) as usize],
            Self::I4 => I4_VALUES[(code & 15) as usize],
        }
    }

    /// The code of the nearest value: half to even, saturating, infinities included.
    ///
    /// NaN gets the element's NaN code. [`Element::F4E2M1`] and [`Element::I4`] have none
    /// ([`Element::has_nan`]): what they make of NaN means nothing, so refuse it first.
    #[inline]
    pub fn encode(self, value: f32) -> u32 {
        match self {
            Self::F32 => value.to_bits(),
            Self::F16 => F16.encode(value),
            Self::Bf16 => BF16.encode(value),
            Self::F8E4M3 => E4M3.encode(value),
            Self::F8E5M2 => E5M2.encode(value),
            Self::F4E2M1 => E2M1.encode(value),
            Self::I4 => int_code(value.round_ties_even().clamp(-8.0, 7.0)),
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the caller clamped to -8..=7")]
fn int_code(q: f32) -> u32 {
    (q as i32 + 8).unsigned_abs()
}
