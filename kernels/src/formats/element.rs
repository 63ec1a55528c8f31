//! Elements: the bit rule of one stored number.

/// A stored number: how many bits, and which value each code stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Element {
    /// IEEE binary32.
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
    /// Unsigned four-bit code; symmetric formats store `q + 8` with `q` in -8..=7.
    I4,
}

/// Types that scales are stored in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ScaleType {
    /// IEEE binary32.
    F32,
    /// The upper half of binary32.
    Bf16,
    /// IEEE binary16.
    F16,
    /// FP8 E4M3.
    E4M3,
    /// A power of two: `2^(code - 127)`; code 255 is NaN.
    Ue8m0,
}

/// Exponent and mantissa layout of a small float.
struct Layout {
    exp_bits: u32,
    man_bits: u32,
    /// Largest finite value.
    max: f32,
    /// Code (without sign) of the NaN that NaN encodes to, if there is one.
    nan: Option<u32>,
    /// Codes (without sign) above this stand for infinity or NaN.
    max_code: u32,
}

impl Element {
    /// Bits of one element.
    pub const fn bits(self) -> usize {
        match self {
            Self::F32 => 32,
            Self::F16 | Self::Bf16 => 16,
            Self::F8E4M3 | Self::F8E5M2 => 8,
            Self::F4E2M1 | Self::I4 => 4,
        }
    }

    /// Largest finite value, where encoding saturates.
    pub fn max(self) -> f32 {
        match self {
            Self::F32 => f32::MAX,
            Self::I4 => 7.0,
            _ => self.layout().max,
        }
    }

    fn layout(self) -> Layout {
        let l = |exp_bits, man_bits, max, nan, max_code| Layout {
            exp_bits,
            man_bits,
            max,
            nan,
            max_code,
        };
        match self {
            Self::F16 => l(5, 10, 65504.0, Some(0x7e00), 0x7bff),
            Self::Bf16 => l(8, 7, 3.389_531_4e38, Some(0x7fc0), 0x7f7f),
            Self::F8E4M3 => l(4, 3, 448.0, Some(0x7f), 0x7e),
            Self::F8E5M2 => l(5, 2, 57344.0, Some(0x7e), 0x7b),
            Self::F4E2M1 => l(2, 1, 6.0, None, 0x7),
            Self::F32 | Self::I4 => unreachable!("not a small float"),
        }
    }

    /// The value a code stands for.
    pub fn decode(self, code: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(code),
            Self::Bf16 => f32::from_bits(code << 16),
            Self::I4 => (code & 15) as f32 - 8.0,
            _ => {
                let l = self.layout();
                let sign_bit = l.exp_bits + l.man_bits;
                let magnitude = code & ((1 << sign_bit) - 1);
                let value = if magnitude > l.max_code {
                    if self != Self::F8E4M3 && magnitude == l.max_code + 1 {
                        f32::INFINITY
                    } else {
                        f32::NAN
                    }
                } else {
                    let bias = (1i32 << (l.exp_bits - 1)) - 1;
                    let (exp, man) =
                        ((magnitude >> l.man_bits) as i32, magnitude & ((1 << l.man_bits) - 1));
                    let man = man as f32 / (1u32 << l.man_bits) as f32;
                    if exp == 0 {
                        man * 2f32.powi(1 - bias)
                    } else {
                        (1.0 + man) * 2f32.powi(exp - bias)
                    }
                };
                if code >> sign_bit & 1 == 1 { -value } else { value }
            }
        }
    }

    /// The code of the nearest value: ties to even, saturating; NaN where there is one, else zero.
    pub fn encode(self, value: f32) -> u32 {
        match self {
            Self::F32 => value.to_bits(),
            Self::I4 => (value.round_ties_even().clamp(-8.0, 7.0) + 8.0) as u32,
            _ => {
                let l = self.layout();
                let sign = u32::from(value.is_sign_negative()) << (l.exp_bits + l.man_bits);
                if value.is_nan() {
                    return l.nan.map_or(0, |nan| nan | sign);
                }
                let magnitude = value.abs();
                if magnitude >= l.max {
                    return l.max_code | sign;
                }
                let bias = (1i32 << (l.exp_bits - 1)) - 1;
                let exp = ((magnitude.to_bits() >> 23) as i32 - 127).max(1 - bias);
                let quantum = 2f64.powi(exp - l.man_bits as i32);
                let steps = (f64::from(magnitude) / quantum).round_ties_even() as u32;
                let code = if exp == 1 - bias {
                    steps
                } else {
                    (((exp + bias) as u32) << l.man_bits) + steps - (1 << l.man_bits)
                };
                code.min(l.max_code) | sign
            }
        }
    }
}

impl ScaleType {
    /// Bytes of one stored scale.
    pub const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::Bf16 | Self::F16 => 2,
            Self::E4M3 | Self::Ue8m0 => 1,
        }
    }

    /// The value a stored scale stands for.
    pub fn decode(self, code: u32) -> f32 {
        match self {
            Self::F32 => f32::from_bits(code),
            Self::Bf16 => Element::Bf16.decode(code),
            Self::F16 => Element::F16.decode(code),
            Self::E4M3 => Element::F8E4M3.decode(code),
            Self::Ue8m0 => {
                if code == 255 {
                    f32::NAN
                } else {
                    2f64.powi(code as i32 - 127) as f32
                }
            }
        }
    }

    /// The stored code nearest to a scale.
    pub fn encode(self, value: f32) -> u32 {
        match self {
            Self::F32 => value.to_bits(),
            Self::Bf16 => Element::Bf16.encode(value),
            Self::F16 => Element::F16.encode(value),
            Self::E4M3 => Element::F8E4M3.encode(value),
            Self::Ue8m0 => (value.log2().ceil() as i32 + 127).clamp(0, 254) as u32,
        }
    }
}
