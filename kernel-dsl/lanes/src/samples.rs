//! Formats, decoders and made-up weights for tests.

use crate::isa::Isa;
use crate::memory::Arena;
use crate::micro::{Decode, IntCodes};
use crate::packed::{PackedWeights, WeightParts};
use tessera_tile_ir::format::{Element, Format, ScaleTile, ScaleType, Tol, WHOLE};

const fn format(name: &'static str, element: Element, tile: Option<ScaleTile>) -> Format {
    let tol = Tol { element: 0.0, tensor: 0.0 };
    Format {
        name,
        element,
        scale_tile: tile,
        zero_point: false,
        tensor_scale: false,
        tol,
        activation: None,
    }
}

const fn tile(scale: ScaleType, rows: usize, cols: usize) -> Option<ScaleTile> {
    let ragged = cols > 32;
    Some(ScaleTile { scale, rows, cols, ragged, divisor: 1.0, precision: scale })
}

pub(crate) const INT4: &Format = &format("int4-g32", Element::I4, tile(ScaleType::Bf16, 1, 32));
pub(crate) const INT4_ROW: &Format =
    &format("int4-row", Element::I4, tile(ScaleType::Bf16, 1, WHOLE));
pub(crate) const INT4_ZP: &Format = &Format {
    zero_point: true,
    ..format("int4-g32-zp", Element::I4, tile(ScaleType::Bf16, 1, 32))
};
pub(crate) const NVFP4: &Format = &Format {
    tensor_scale: true,
    ..format("nvfp4", Element::F4E2M1, tile(ScaleType::E4M3, 1, 16))
};
pub(crate) const MXFP4: &Format = &format("mxfp4", Element::F4E2M1, tile(ScaleType::Ue8m0, 1, 32));
pub(crate) const FP8_TILE: &Format =
    &format("fp8-128x128", Element::F8E4M3, tile(ScaleType::F32, 128, 128));
pub(crate) const FP8_ROW: &Format =
    &format("fp8-channel", Element::F8E4M3, tile(ScaleType::F32, 1, WHOLE));
pub(crate) const F16: &Format = &format("f16", Element::F16, None);
pub(crate) const BF16: &Format = &format("bf16", Element::Bf16, None);
pub(crate) const F32: &Format = &format("f32", Element::F32, None);

pub(crate) const FORMATS: [&Format; 10] =
    [INT4, INT4_ROW, INT4_ZP, NVFP4, MXFP4, FP8_TILE, FP8_ROW, F16, BF16, F32];

/// A stored weight of made-up, finite values.
pub(crate) struct Sample {
    format: &'static Format,
    rows: usize,
    cols: usize,
    codes: Vec<u8>,
    scales: Vec<u8>,
    zero_points: Vec<u8>,
}

/// A sequence of numbers that look random.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        self.0.to_le_bytes()[7]
    }

    /// In -1..1.
    pub(crate) fn float(&mut self) -> f32 {
        f32::from(i16::from_le_bytes([self.byte(), self.byte()])) / 32768.0
    }

    pub(crate) fn floats(&mut self, count: usize) -> Vec<f32> {
        (0..count).map(|_| self.float()).collect()
    }
}

impl Sample {
    /// `None` if the format does not have weights of this width.
    pub(crate) fn new(
        format: &'static Format,
        rows: usize,
        cols: usize,
        seed: u64,
    ) -> Option<Self> {
        if let Some(tile) = format.scale_tile
            && tile.cols != WHOLE
            && !tile.ragged
            && !cols.is_multiple_of(tile.cols)
        {
            return None;
        }
        let mut numbers = Numbers::new(seed);
        let mut codes = Vec::new();
        for _ in 0..rows {
            let mut row = vec![0; format.row_bytes(cols)];
            let bytes = format.element.bits().div_ceil(8);
            for chunk in row.chunks_mut(bytes) {
                let code = format.element.encode(numbers.float());
                match format.element.bits() {
                    4 => chunk.fill_with(|| numbers.byte()),
                    _ => chunk.copy_from_slice(&code.to_le_bytes()[..bytes]),
                }
            }
            codes.extend(row);
        }
        let tiles = format.tiles(rows, cols);
        let mut scales = Vec::new();
        for _ in 0..tiles {
            let tile = format.scale_tile.unwrap();
            tile.scale.push(numbers.float().abs() + 0.01, &mut scales);
        }
        let zeros = if format.zero_point { tiles } else { 0 };
        let zero_points = (0..zeros).map(|_| numbers.byte() & 15).collect();
        Some(Self { format, rows, cols, codes, scales, zero_points })
    }

    pub(crate) fn parts(&self) -> WeightParts<'_> {
        WeightParts {
            format: self.format,
            rows: self.rows,
            cols: self.cols,
            codes: &self.codes,
            scales: &self.scales,
            zero_points: &self.zero_points,
            tensor_scale: if self.format.tensor_scale { 0.37 } else { 1.0 },
        }
    }

    pub(crate) fn packed(&self) -> PackedWeights {
        PackedWeights::pack(&self.parts(), &Arena::new()).unwrap()
    }
}

pub(crate) struct I4Codes;
impl IntCodes for I4Codes {
    const TABLE: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];
    const UNIT: f32 = 1.0;
    const OFFSET: u8 = 8;
}

pub(crate) struct E2m1Codes;
impl IntCodes for E2m1Codes {
    const TABLE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    const UNIT: f32 = 0.5;
    const OFFSET: u8 = 12;
}

pub(crate) struct AsF32;
impl Decode for AsF32 {
    const BITS: usize = 32;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(codes)
    }
}

pub(crate) struct AsBf16;
impl Decode for AsBf16 {
    const BITS: usize = 16;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(isa.shl::<16>(codes))
    }
}

/// A small float whose largest exponent is an ordinary one, scaled up so that f32 has its
/// subnormals as normal numbers.
#[inline(always)]
fn small_float<I: Isa>(isa: I, codes: I::I32, shift: (i32, i32), scale: f32) -> I::F32 {
    let sign = isa.and(codes, isa.splat_i32(shift.0));
    let magnitude = isa.and(codes, isa.splat_i32(shift.0 - 1));
    let bits = if shift.1 == 20 {
        isa.or(isa.shl::<24>(sign), isa.shl::<20>(magnitude))
    } else {
        isa.or(isa.shl::<16>(sign), isa.shl::<13>(magnitude))
    };
    isa.mul(isa.from_bits(bits), isa.splat(scale))
}

pub(crate) struct AsE4m3;
impl Decode for AsE4m3 {
    const BITS: usize = 8;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let value = small_float(isa, codes, (0x80, 20), f32::from_bits(247 << 23));
        let magnitude = isa.and(codes, isa.splat_i32(0x7f));
        let nan = isa.eq_i32(magnitude, isa.splat_i32(0x7f));
        isa.select(nan, isa.splat(f32::NAN), value)
    }
}

pub(crate) struct AsF16;
impl Decode for AsF16 {
    const BITS: usize = 16;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        small_float(isa, codes, (0x8000, 13), f32::from_bits(239 << 23))
    }
}

pub(crate) struct AsUe8m0;
impl Decode for AsUe8m0 {
    const BITS: usize = 8;
    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(isa.shl::<23>(codes))
    }
}
