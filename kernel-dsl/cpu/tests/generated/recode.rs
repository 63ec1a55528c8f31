//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// `bf16`.
#[derive(Debug, Clone, Copy)]
pub struct Bf16;

impl Decode for Bf16 {
    const BITS: usize = 16;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let stored = isa.and(codes, isa.splat_i32(32767)); // 0x7fff
        let magnitude = isa.shl::<16>(stored);
        let sign = isa.and(codes, isa.splat_i32(32768));
        let sign = isa.shl::<16>(sign);
        isa.from_bits(isa.or(sign, magnitude))
    }
}

impl Encode for Bf16 {
    #[inline(always)]
    fn encode<I: Isa>(isa: I, value: I::F32) -> I::I32 {
        encode_float::<I, 7, 15>(isa, value, SmallFloat { bias: 127, max: 32639, nan: 32704 })
    }
}

/// `e4m3`.
#[derive(Debug, Clone, Copy)]
pub struct E4m3;

impl Decode for E4m3 {
    const BITS: usize = 8;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let stored = isa.and(codes, isa.splat_i32(127)); // 0x7f
        let magnitude = isa.shl::<20>(stored);
        let value = isa.mul(isa.from_bits(magnitude), isa.splat(f32::from_bits(0x7b800000)));
        let magnitude = isa.bits(value);
        let special = isa.lt_i32(isa.splat_i32(126), stored);
        let nan = isa.splat_i32(0x7fc00000);
        let magnitude = isa.select_i32(special, nan, magnitude);
        let sign = isa.and(codes, isa.splat_i32(128));
        let sign = isa.shl::<24>(sign);
        isa.from_bits(isa.or(sign, magnitude))
    }
}

impl Encode for E4m3 {
    #[inline(always)]
    fn encode<I: Isa>(isa: I, value: I::F32) -> I::I32 {
        encode_float::<I, 3, 7>(isa, value, SmallFloat { bias: 7, max: 126, nan: 127 })
    }
}

/// `e5m2`.
#[derive(Debug, Clone, Copy)]
pub struct E5m2;

impl Decode for E5m2 {
    const BITS: usize = 8;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let stored = isa.and(codes, isa.splat_i32(127)); // 0x7f
        let magnitude = isa.shl::<21>(stored);
        let value = isa.mul(isa.from_bits(magnitude), isa.splat(f32::from_bits(0x77800000)));
        let magnitude = isa.bits(value);
        let special = isa.lt_i32(isa.splat_i32(123), stored);
        let nan = isa.splat_i32(0x7fc00000);
        let is_inf = isa.eq_i32(stored, isa.splat_i32(124));
        let nan = isa.select_i32(is_inf, isa.splat_i32(0x7f80_0000), nan);
        let magnitude = isa.select_i32(special, nan, magnitude);
        let sign = isa.and(codes, isa.splat_i32(128));
        let sign = isa.shl::<24>(sign);
        isa.from_bits(isa.or(sign, magnitude))
    }
}

impl Encode for E5m2 {
    #[inline(always)]
    fn encode<I: Isa>(isa: I, value: I::F32) -> I::I32 {
        encode_float::<I, 2, 7>(isa, value, SmallFloat { bias: 15, max: 123, nan: 126 })
    }
}

/// `f16`.
#[derive(Debug, Clone, Copy)]
pub struct F16;

impl Decode for F16 {
    const BITS: usize = 16;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let stored = isa.and(codes, isa.splat_i32(32767)); // 0x7fff
        let magnitude = isa.shl::<13>(stored);
        let value = isa.mul(isa.from_bits(magnitude), isa.splat(f32::from_bits(0x77800000)));
        let magnitude = isa.bits(value);
        let special = isa.lt_i32(isa.splat_i32(31743), stored);
        let nan = isa.splat_i32(0x7fc00000);
        let is_inf = isa.eq_i32(stored, isa.splat_i32(31744));
        let nan = isa.select_i32(is_inf, isa.splat_i32(0x7f80_0000), nan);
        let magnitude = isa.select_i32(special, nan, magnitude);
        let sign = isa.and(codes, isa.splat_i32(32768));
        let sign = isa.shl::<16>(sign);
        isa.from_bits(isa.or(sign, magnitude))
    }
}

impl Encode for F16 {
    #[inline(always)]
    fn encode<I: Isa>(isa: I, value: I::F32) -> I::I32 {
        encode_float::<I, 10, 15>(isa, value, SmallFloat { bias: 15, max: 31743, nan: 32256 })
    }
}

/// A launch of `recode`, kernel-dsl/cpu/tests/kernels/mod.rs:307.
pub struct Recode<'a> {
    /// `In<f32, [M, N]>`.
    pub x: View<'a, f32, 2>,
    /// `InOut<stored, [M, N]>`.
    pub codes: StoredViewMut<'a, 2>,
    /// `Out<f32, [M, N]>`.
    pub values: ViewMut<'a, f32, 2>,
}

impl Recode<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 3] = [&self.x.dims(), &self.codes.dims(), &self.values.dims()];
        let mut misfit = None;
        if self.codes.format() == "e4m3" {
            match RECODE_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = RecodeV0 {
                        x: self.x,
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("recode"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.codes.format() == "e5m2" {
            match RECODE_V1.solve(&shapes) {
                Ok(dims) => {
                    let program = RecodeV1 {
                        x: self.x,
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("recode"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.codes.format() == "bf16" {
            match RECODE_V2.solve(&shapes) {
                Ok(dims) => {
                    let program = RecodeV2 {
                        x: self.x,
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("recode"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.codes.format() == "f16" {
            match RECODE_V3.solve(&shapes) {
                Ok(dims) => {
                    let program = RecodeV3 {
                        x: self.x,
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("recode"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("recode", &[self.codes.format()])))
    }
}

const RECODE_V0: Signature = Signature {
    kernel: "recode",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `recode<e4m3>`.
///
struct RecodeV0<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, u8, 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:306
        let v1: i64 = self.dims[0].wrapping_add(3_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 3_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RecodeV0<'_> {
    const KERNEL: &'static str = "recode";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:312
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:313
        let window5 = self.values.window_mut([v4, 0_i64], [3, 50]);
        let window8 = self.codes.window([v4, 0_i64], [3, 50]);
        let x11 = isa.splat(0.0_f32);
        for r in 0..3 {
            let row6 = window5.row(r);
            let row7 = window8.row(r);
            for c in (0..50).step_by(16) {
                let x9 = load_codes(isa, row7.lanes(c));
                let x10 = E4m3::decode(isa, x9);
                let x12 = isa.add(x10, x11);
                row6.put_lanes(c, array(isa, x12));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:314
        let window13 = self.codes.window_mut([v4, 0_i64], [3, 50]);
        let window16 = self.x.window([v4, 0_i64], [3, 50]);
        for r in 0..3 {
            let row14 = window13.row(r);
            let row15 = window16.row(r);
            for c in (0..50).step_by(16) {
                let x17 = isa.load(&row15.lanes(c));
                let x18 = E4m3::encode(isa, x17);
                row14.put_lanes(c, store_codes(isa, x18));
            }
        }
        Ok(())
    }
}

const RECODE_V1: Signature = Signature {
    kernel: "recode",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `recode<e5m2>`.
///
struct RecodeV1<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, u8, 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV1<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:306
        let v1: i64 = self.dims[0].wrapping_add(3_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 3_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RecodeV1<'_> {
    const KERNEL: &'static str = "recode";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:312
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:313
        let window5 = self.values.window_mut([v4, 0_i64], [3, 50]);
        let window8 = self.codes.window([v4, 0_i64], [3, 50]);
        let x11 = isa.splat(0.0_f32);
        for r in 0..3 {
            let row6 = window5.row(r);
            let row7 = window8.row(r);
            for c in (0..50).step_by(16) {
                let x9 = load_codes(isa, row7.lanes(c));
                let x10 = E5m2::decode(isa, x9);
                let x12 = isa.add(x10, x11);
                row6.put_lanes(c, array(isa, x12));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:314
        let window13 = self.codes.window_mut([v4, 0_i64], [3, 50]);
        let window16 = self.x.window([v4, 0_i64], [3, 50]);
        for r in 0..3 {
            let row14 = window13.row(r);
            let row15 = window16.row(r);
            for c in (0..50).step_by(16) {
                let x17 = isa.load(&row15.lanes(c));
                let x18 = E5m2::encode(isa, x17);
                row14.put_lanes(c, store_codes(isa, x18));
            }
        }
        Ok(())
    }
}

const RECODE_V2: Signature = Signature {
    kernel: "recode",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `recode<bf16>`.
///
struct RecodeV2<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, [u8; 2], 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV2<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:306
        let v1: i64 = self.dims[0].wrapping_add(3_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 3_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RecodeV2<'_> {
    const KERNEL: &'static str = "recode";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:312
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:313
        let window5 = self.values.window_mut([v4, 0_i64], [3, 50]);
        let window8 = self.codes.window([v4, 0_i64], [3, 50]);
        let x11 = isa.splat(0.0_f32);
        for r in 0..3 {
            let row6 = window5.row(r);
            let row7 = window8.row(r);
            for c in (0..50).step_by(16) {
                let x9 = load_codes(isa, row7.lanes(c));
                let x10 = Bf16::decode(isa, x9);
                let x12 = isa.add(x10, x11);
                row6.put_lanes(c, array(isa, x12));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:314
        let window13 = self.codes.window_mut([v4, 0_i64], [3, 50]);
        let window16 = self.x.window([v4, 0_i64], [3, 50]);
        for r in 0..3 {
            let row14 = window13.row(r);
            let row15 = window16.row(r);
            for c in (0..50).step_by(16) {
                let x17 = isa.load(&row15.lanes(c));
                let x18 = Bf16::encode(isa, x17);
                row14.put_lanes(c, store_codes(isa, x18));
            }
        }
        Ok(())
    }
}

const RECODE_V3: Signature = Signature {
    kernel: "recode",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `recode<f16>`.
///
struct RecodeV3<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, [u8; 2], 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV3<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:306
        let v1: i64 = self.dims[0].wrapping_add(3_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 3_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RecodeV3<'_> {
    const KERNEL: &'static str = "recode";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:312
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:313
        let window5 = self.values.window_mut([v4, 0_i64], [3, 50]);
        let window8 = self.codes.window([v4, 0_i64], [3, 50]);
        let x11 = isa.splat(0.0_f32);
        for r in 0..3 {
            let row6 = window5.row(r);
            let row7 = window8.row(r);
            for c in (0..50).step_by(16) {
                let x9 = load_codes(isa, row7.lanes(c));
                let x10 = F16::decode(isa, x9);
                let x12 = isa.add(x10, x11);
                row6.put_lanes(c, array(isa, x12));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:314
        let window13 = self.codes.window_mut([v4, 0_i64], [3, 50]);
        let window16 = self.x.window([v4, 0_i64], [3, 50]);
        for r in 0..3 {
            let row14 = window13.row(r);
            let row15 = window16.row(r);
            for c in (0..50).step_by(16) {
                let x17 = isa.load(&row15.lanes(c));
                let x18 = F16::encode(isa, x17);
                row14.put_lanes(c, store_codes(isa, x18));
            }
        }
        Ok(())
    }
}

