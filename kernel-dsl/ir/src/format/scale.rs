//! Scales: the types they are stored in, and the part of a weight that shares one.

use super::{Element, FloatBits};

/// Types that scales are stored in, little endian.
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
    /// A power of two: `2^(code - 127)`; code 255 is NaN. Has no zero and no sign.
    Ue8m0,
}

/// Which way a checkpoint format states the scale of a whole tensor. Fixed by the format, never
/// guessed from the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TensorScaleKind {
    /// `real = code * scale * stored`: modelopt's `weight_scale_2`.
    Multiplier,
    /// `real = code * scale / stored`: compressed-tensors' `weight_global_scale`.
    Divisor,
}

impl TensorScaleKind {
    /// The multiplier that a packed matrix wants. Nonsense in is nonsense out (zero gives
    /// infinity), which the matrix refuses.
    pub fn multiplier(self, stored: f32) -> f32 {
        match self {
            Self::Multiplier => stored,
            Self::Divisor => stored.recip(),
        }
    }
}

/// "All of them", as an extent of a [`ScaleTile`].
pub const WHOLE: usize = usize::MAX;

/// The part of a weight that shares one scale, and how the quantizer picks that scale.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ScaleTile {
    /// Type the scale is stored in.
    pub scale: ScaleType,
    /// Weight rows (output features) per scale; [`WHOLE`] for all.
    pub rows: usize,
    /// Weight columns (input features) per scale; [`WHOLE`] for all.
    pub cols: usize,
    /// Whether the last tile of a row may be short; if not, other widths are refused.
    pub ragged: bool,
    /// The quantizer's rule: `scale = amax / divisor`, or `(max - min) / divisor` where there are
    /// zero points.
    pub divisor: f32,
    /// Precision that the quantizer rounds a scale to before it is stored. Coarser than `scale`
    /// where checkpoints of the format carry coarser scales than a reader must accept.
    pub precision: ScaleType,
}

impl ScaleTile {
    /// Scale tiles of a `[rows, cols]` weight, down and across; the last of each may be partial.
    pub const fn grid(&self, rows: usize, cols: usize) -> (usize, usize) {
        (rows.div_ceil(self.rows), cols.div_ceil(self.cols))
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

    /// Largest finite scale.
    pub fn max(self) -> f32 {
        self.element().map_or(self.decode(254), Element::max)
    }

    /// The value a stored scale stands for.
    #[inline]
    pub fn decode(self, code: u32) -> f32 {
        match self.element() {
            Some(element) => element.decode(code),
            None if code == 255 => f32::NAN,
            // 2^-127 is below the smallest normal f32: its exponent field is zero.
            None if code == 0 => f32::from_bits(1 << 22),
            None => f32::from_bits(code << 23),
        }
    }

    /// The stored code of a scale that is not negative: the nearest one, half to even, saturating.
    /// [`ScaleType::Ue8m0`] instead takes the power of two at or below `value`, which is the rule
    /// of OCP MX; values below `2^-127` get code 0.
    #[inline]
    pub fn encode(self, value: f32) -> u32 {
        match self.element() {
            Some(element) => element.encode(value),
            None if value.is_nan() => 255,
            None => (value.max(0.0).to_bits() >> 23).min(254),
        }
    }

    /// Reads stored scale `idx`.
    ///
    /// # Panics
    /// If `stored` is shorter than that.
    #[inline]
    pub fn read(self, stored: &[u8], idx: usize) -> f32 {
        let at = idx * self.bytes();
        self.decode(match self.bytes() {
            4 => u32::from_le_bytes([stored[at], stored[at + 1], stored[at + 2], stored[at + 3]]),
            2 => u32::from(u16::from_le_bytes([stored[at], stored[at + 1]])),
            _ => u32::from(stored[at]),
        })
    }

    /// Appends the stored form of `value`, see [`ScaleType::encode`].
    pub fn push(self, value: f32, stored: &mut Vec<u8>) {
        stored.extend_from_slice(&self.encode(value).to_le_bytes()[..self.bytes()]);
    }

    /// How vector code reads a stored scale.
    pub const fn float_bits_rule(self) -> FloatBits {
        match self {
            Self::F32 => FloatBits::F32,
            Self::Bf16 => small(Element::Bf16),
            Self::F16 => small(Element::F16),
            Self::E4M3 => small(Element::F8E4M3),
            Self::Ue8m0 => FloatBits::UE8M0,
        }
    }

    /// The element with the same codes; `None` for [`ScaleType::Ue8m0`].
    pub const fn element(self) -> Option<Element> {
        match self {
            Self::F32 => Some(Element::F32),
            Self::Bf16 => Some(Element::Bf16),
            Self::F16 => Some(Element::F16),
            Self::E4M3 => Some(Element::F8E4M3),
            Self::Ue8m0 => None,
        }
    }
}

const fn small(element: Element) -> FloatBits {
    match element.format().float_bits_rule() {
        Some(rule) => rule,
        None => panic!("scales are floats"),
    }
}
