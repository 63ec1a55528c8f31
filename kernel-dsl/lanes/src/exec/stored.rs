//! Arrays of stored codes, and codes to numbers and back.

use crate::isa::{Isa, LANES};
use crate::view::{View, ViewMut, contiguous};
use std::marker::PhantomData;
use tessera_tile_ir::format::Element;

/// Codes of an element that a launch decides, in little-endian bytes.
#[derive(Debug, Clone, Copy)]
pub struct StoredView<'a, const R: usize> {
    bytes: &'a [u8],
    element: Element,
    dims: [usize; R],
    strides: [usize; R],
}

/// Codes that the programs of a launch write.
#[derive(Debug)]
pub struct StoredViewMut<'a, const R: usize> {
    /// The whole array as single bytes.
    bytes: ViewMut<'a, u8, 1>,
    element: Element,
    dims: [usize; R],
    strides: [usize; R],
    data: PhantomData<&'a mut [u8]>,
}

/// Codes of one width: the bytes of one in a view.
pub trait Code: Copy + Default + Send + Sync {
    /// Bytes of a code.
    const BYTES: usize;
    /// The bytes as whole codes.
    fn cast(bytes: &[u8]) -> &[Self];
    /// Sixteen codes, zero-extended.
    fn load<I: Isa>(isa: I, codes: [Self; LANES]) -> I::I32;
    /// The low bits of sixteen lanes.
    fn store<I: Isa>(isa: I, lanes: I::I32) -> [Self; LANES];
}

impl Code for u8 {
    const BYTES: usize = 1;
    #[inline(always)]
    fn cast(bytes: &[u8]) -> &[Self] {
        bytes
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, codes: [Self; LANES]) -> I::I32 {
        isa.load_u8(&codes)
    }
    #[inline(always)]
    fn store<I: Isa>(isa: I, lanes: I::I32) -> [Self; LANES] {
        let mut codes = [0; LANES];
        isa.store_u8(lanes, &mut codes);
        codes
    }
}

impl Code for [u8; 2] {
    const BYTES: usize = 2;
    #[inline(always)]
    fn cast(bytes: &[u8]) -> &[Self] {
        bytes.as_chunks().0
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, codes: [Self; LANES]) -> I::I32 {
        isa.load_u16(codes.as_flattened().first_chunk().expect("sixteen times two bytes"))
    }
    #[inline(always)]
    fn store<I: Isa>(isa: I, lanes: I::I32) -> [Self; LANES] {
        let mut codes = [[0; 2]; LANES];
        let bytes = codes.as_flattened_mut().first_chunk_mut();
        isa.store_u16(lanes, bytes.expect("sixteen times two bytes"));
        codes
    }
}

impl Code for [u8; 4] {
    const BYTES: usize = 4;
    #[inline(always)]
    fn cast(bytes: &[u8]) -> &[Self] {
        bytes.as_chunks().0
    }
    #[inline(always)]
    fn load<I: Isa>(isa: I, codes: [Self; LANES]) -> I::I32 {
        isa.load_i32(&codes.map(i32::from_le_bytes))
    }
    #[inline(always)]
    fn store<I: Isa>(isa: I, lanes: I::I32) -> [Self; LANES] {
        super::array_i32(isa, lanes).map(i32::to_le_bytes)
    }
}

fn code_bytes(element: Element) -> usize {
    element.bits().div_ceil(8).next_power_of_two()
}

impl<'a, const R: usize> StoredView<'a, R> {
    /// A view of an array without gaps.
    pub fn new(bytes: &'a [u8], element: Element, dims: [usize; R]) -> Self {
        Self::strided(bytes, element, (dims, contiguous(dims)))
    }

    /// A view of an array, extents and strides in codes.
    pub fn strided(
        bytes: &'a [u8],
        element: Element,
        (dims, strides): ([usize; R], [usize; R]),
    ) -> Self {
        Self { bytes, element, dims, strides }
    }

    /// Name of the element.
    pub fn format(&self) -> &'static str {
        self.element.name()
    }

    /// Extent of each axis.
    pub fn dims(&self) -> [usize; R] {
        self.dims
    }

    /// The codes, each of as many bytes as the element takes up.
    ///
    /// # Panics
    /// If that is another width, or the array is too short.
    pub fn codes<C: Code>(&self) -> View<'a, C, R> {
        assert_eq!(C::BYTES, code_bytes(self.element), "bytes of a code");
        View::strided(C::cast(self.bytes), self.dims, self.strides)
    }
}

impl<'a, const R: usize> StoredViewMut<'a, R> {
    /// A view of an array without gaps.
    pub fn new(bytes: &'a mut [u8], element: Element, dims: [usize; R]) -> Self {
        Self::strided(bytes, element, (dims, contiguous(dims)))
    }

    /// A view of an array, extents and strides in codes.
    pub fn strided(
        bytes: &'a mut [u8],
        element: Element,
        (dims, strides): ([usize; R], [usize; R]),
    ) -> Self {
        let len = bytes.len();
        let bytes = ViewMut::new(bytes, [len]);
        Self { bytes, element, dims, strides, data: PhantomData }
    }

    /// Name of the element.
    pub fn format(&self) -> &'static str {
        self.element.name()
    }

    /// Extent of each axis.
    pub fn dims(&self) -> [usize; R] {
        self.dims
    }

    /// The codes, each of as many bytes as the element takes up.
    ///
    /// # Panics
    /// If that is another width, or the array is too short.
    pub fn codes<C: Code>(&self) -> ViewMut<'_, C, R> {
        assert_eq!(C::BYTES, code_bytes(self.element), "bytes of a code");
        self.bytes.regroup(C::BYTES, self.dims, self.strides)
    }
}

/// Numbers to codes. Implemented by code that the format's declaration generates.
pub trait Encode {
    /// The codes of sixteen values, in the low bits of their lanes.
    fn encode<I: Isa>(isa: I, values: I::F32) -> I::I32;
}

/// Sixteen codes of a view.
#[inline(always)]
pub fn load_codes<I: Isa, C: Code>(isa: I, codes: [C; LANES]) -> I::I32 {
    C::load(isa, codes)
}

/// Sixteen codes for a view.
#[inline(always)]
pub fn store_codes<I: Isa, C: Code>(isa: I, lanes: I::I32) -> [C; LANES] {
    C::store(isa, lanes)
}

/// One code of a view.
#[inline(always)]
pub fn code<C: CodeWord>(code: C) -> u32 {
    code.word()
}

/// One code for a view.
#[inline(always)]
pub fn from_code<C: CodeWord>(word: u32) -> C {
    C::of_word(word)
}

/// A code as a number of its own.
pub trait CodeWord: Code {
    /// Zero-extended.
    fn word(self) -> u32;
    /// The low bits.
    fn of_word(word: u32) -> Self;
}

impl CodeWord for u8 {
    #[inline(always)]
    fn word(self) -> u32 {
        u32::from(self)
    }
    #[inline(always)]
    fn of_word(word: u32) -> Self {
        word.to_le_bytes()[0]
    }
}

impl CodeWord for [u8; 2] {
    #[inline(always)]
    fn word(self) -> u32 {
        u32::from(u16::from_le_bytes(self))
    }
    #[inline(always)]
    fn of_word(word: u32) -> Self {
        let [low, high, ..] = word.to_le_bytes();
        [low, high]
    }
}

impl CodeWord for [u8; 4] {
    #[inline(always)]
    fn word(self) -> u32 {
        u32::from_le_bytes(self)
    }
    #[inline(always)]
    fn of_word(word: u32) -> Self {
        word.to_le_bytes()
    }
}

/// What tells one small float from another when values are encoded. Codes without their sign.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "named as in the declaration of a number format")]
pub struct SmallFloat {
    pub bias: u32,
    pub max: u32,
    pub nan: u32,
}

/// Codes of a small float with `MAN` bits of mantissa and its sign at bit `SIGN`: the nearest,
/// ties to even, saturating, NaN to the NaN code.
#[inline(always)]
pub fn encode_float<I: Isa, const MAN: i32, const SIGN: i32>(
    isa: I,
    value: I::F32,
    float: SmallFloat,
) -> I::I32 {
    let splat = |bits: u32| isa.splat_i32(bits.cast_signed());
    let man = MAN.cast_unsigned();
    let bits = isa.bits(value);
    let magnitude = isa.and(bits, splat(0x7fff_ffff));
    // Normal: rounded in place, then the biases' difference is taken off. The shift is written as
    // repeated constants because a shift's distance is part of the instruction.
    let half = splat((1 << (22 - man)) - 1);
    let shifted = shift_right::<I, MAN>(isa, magnitude);
    let odd = isa.and(shifted, splat(1));
    let rounded = shift_right::<I, MAN>(isa, isa.add_i32(isa.add_i32(magnitude, half), odd));
    let normal = isa.sub_i32(rounded, splat((127 - float.bias) << man));
    // Subnormal: beside a power of two whose last bit is the quantum, the addition rounds.
    let anchor = f32::from_bits((151 - float.bias - man) << 23);
    let sum = isa.add(isa.from_bits(magnitude), isa.splat(anchor));
    let subnormal = isa.sub_i32(isa.bits(sum), splat(anchor.to_bits()));
    let is_subnormal = isa.lt_i32(magnitude, splat((128 - float.bias) << 23));
    let code = isa.select_i32(is_subnormal, subnormal, normal);
    let code = isa.min_i32(code, splat(float.max));
    let is_nan = isa.lt_i32(splat(0x7f80_0000), magnitude);
    let code = isa.select_i32(is_nan, splat(float.nan), code);
    let sign = shift_sign::<I, SIGN>(isa, isa.and(bits, splat(1 << 31)));
    isa.or(code, sign)
}

/// Right by `23 - MAN`.
#[inline(always)]
fn shift_right<I: Isa, const MAN: i32>(isa: I, a: I::I32) -> I::I32 {
    match MAN {
        1 => isa.shr::<22>(a),
        2 => isa.shr::<21>(a),
        3 => isa.shr::<20>(a),
        4 => isa.shr::<19>(a),
        7 => isa.shr::<16>(a),
        10 => isa.shr::<13>(a),
        _ => super::map_i32(isa, a, |a| (a.cast_unsigned() >> (23 - MAN)).cast_signed()),
    }
}

/// The sign from bit 31 to bit `SIGN`.
#[inline(always)]
fn shift_sign<I: Isa, const SIGN: i32>(isa: I, a: I::I32) -> I::I32 {
    match SIGN {
        3 => isa.shr::<28>(a),
        5 => isa.shr::<26>(a),
        7 => isa.shr::<24>(a),
        15 => isa.shr::<16>(a),
        _ => super::map_i32(isa, a, |a| (a.cast_unsigned() >> (31 - SIGN)).cast_signed()),
    }
}

/// Codes of integers from `-bias`: the nearest, ties to even, saturating.
#[inline(always)]
#[expect(clippy::cast_precision_loss, reason = "codes have at most 16 bits")]
pub fn encode_int<I: Isa>(isa: I, value: I::F32, bias: u32, max: u32) -> I::I32 {
    let rounded = isa.add(isa.round(value), isa.splat(bias as f32));
    let clamped = isa.min(isa.max(rounded, isa.splat(0.0)), isa.splat(max as f32));
    super::to_i32(isa, clamped)
}

/// The value of one code, with the bits that lanes give.
#[inline(always)]
pub fn decode_one<D: crate::micro::Decode, I: Isa>(isa: I, code: u32) -> f32 {
    super::array(isa, D::decode(isa, isa.splat_i32(code.cast_signed())))[0]
}

/// The code of one value, with the bits that lanes give.
#[inline(always)]
pub fn encode_one<E: Encode, I: Isa>(isa: I, value: f32) -> u32 {
    super::array_i32(isa, E::encode(isa, isa.splat(value)))[0].cast_unsigned()
}

/// Truths of a view.
#[inline(always)]
pub fn mask_of<I: Isa>(isa: I, truths: [bool; LANES]) -> I::Mask {
    super::from_fn_mask(isa, |lane| truths[lane])
}
