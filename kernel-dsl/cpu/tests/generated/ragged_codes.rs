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

/// A launch of `ragged_codes`, kernel-dsl/cpu/tests/kernels/mod.rs:443.
pub struct RaggedCodes<'a> {
    /// `i64`.
    pub end: i64,
    /// `In<stored, [M, 20]>`.
    pub from: StoredView<'a, 2>,
    /// `Out<stored, [M, 20]>`.
    pub codes: StoredViewMut<'a, 2>,
    /// `Out<f32, [M, 20]>`.
    pub values: ViewMut<'a, f32, 2>,
}

impl RaggedCodes<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 3] = [&self.from.dims(), &self.codes.dims(), &self.values.dims()];
        let mut misfit = None;
        if self.from.format() == "e4m3" && self.codes.format() == "e4m3" {
            match RAGGED_CODES_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = RaggedCodesV0 {
                        end: self.end,
                        from: self.from.codes(),
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged_codes"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.from.format() == "e5m2" && self.codes.format() == "e5m2" {
            match RAGGED_CODES_V1.solve(&shapes) {
                Ok(dims) => {
                    let program = RaggedCodesV1 {
                        end: self.end,
                        from: self.from.codes(),
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged_codes"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.from.format() == "bf16" && self.codes.format() == "bf16" {
            match RAGGED_CODES_V2.solve(&shapes) {
                Ok(dims) => {
                    let program = RaggedCodesV2 {
                        end: self.end,
                        from: self.from.codes(),
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged_codes"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.from.format() == "f16" && self.codes.format() == "f16" {
            match RAGGED_CODES_V3.solve(&shapes) {
                Ok(dims) => {
                    let program = RaggedCodesV3 {
                        end: self.end,
                        from: self.from.codes(),
                        codes: self.codes.codes(),
                        values: &self.values,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged_codes"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("ragged_codes", &[self.from.format(), self.codes.format()])))
    }
}

const RAGGED_CODES_V0: Signature = Signature {
    kernel: "ragged_codes",
    dims: &["M"],
    views: &[
        ("from", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
    ],
};

/// `ragged_codes<e4m3>`.
///
struct RaggedCodesV0<'a> {
    end: i64,
    from: View<'a, u8, 2>,
    codes: ViewMut<'a, u8, 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 1],
}

impl RaggedCodesV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [1_i64, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedCodesV0<'_> {
    const KERNEL: &'static str = "ragged_codes";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:450
        let window1 = self.values.window_mut([0_i64, 0_i64], [6, 20]);
        let window4 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row2 = window1.row(r);
            let row3 = window4.row(r);
            for c in (0..20).step_by(16) {
                let x5 = load_codes(isa, row3.lanes(c));
                let x6 = E4m3::decode(isa, x5);
                row2.put_lanes(c, array(isa, x6));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:451
        let v7: i64 = self.end.wrapping_sub(1_i64);
        let window8 = self.codes.until(v7).window_mut([0_i64, 0_i64], [6, 20]);
        let window11 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row9 = window8.row(r);
            let row10 = window11.row(r);
            for c in (0..20).step_by(16) {
                let x12 = load_codes(isa, row10.lanes(c));
                row9.put_lanes(c, store_codes(isa, x12));
            }
        }
        Ok(())
    }
}

const RAGGED_CODES_V1: Signature = Signature {
    kernel: "ragged_codes",
    dims: &["M"],
    views: &[
        ("from", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
    ],
};

/// `ragged_codes<e5m2>`.
///
struct RaggedCodesV1<'a> {
    end: i64,
    from: View<'a, u8, 2>,
    codes: ViewMut<'a, u8, 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 1],
}

impl RaggedCodesV1<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [1_i64, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedCodesV1<'_> {
    const KERNEL: &'static str = "ragged_codes";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:450
        let window1 = self.values.window_mut([0_i64, 0_i64], [6, 20]);
        let window4 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row2 = window1.row(r);
            let row3 = window4.row(r);
            for c in (0..20).step_by(16) {
                let x5 = load_codes(isa, row3.lanes(c));
                let x6 = E5m2::decode(isa, x5);
                row2.put_lanes(c, array(isa, x6));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:451
        let v7: i64 = self.end.wrapping_sub(1_i64);
        let window8 = self.codes.until(v7).window_mut([0_i64, 0_i64], [6, 20]);
        let window11 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row9 = window8.row(r);
            let row10 = window11.row(r);
            for c in (0..20).step_by(16) {
                let x12 = load_codes(isa, row10.lanes(c));
                row9.put_lanes(c, store_codes(isa, x12));
            }
        }
        Ok(())
    }
}

const RAGGED_CODES_V2: Signature = Signature {
    kernel: "ragged_codes",
    dims: &["M"],
    views: &[
        ("from", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
    ],
};

/// `ragged_codes<bf16>`.
///
struct RaggedCodesV2<'a> {
    end: i64,
    from: View<'a, [u8; 2], 2>,
    codes: ViewMut<'a, [u8; 2], 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 1],
}

impl RaggedCodesV2<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [1_i64, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedCodesV2<'_> {
    const KERNEL: &'static str = "ragged_codes";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:450
        let window1 = self.values.window_mut([0_i64, 0_i64], [6, 20]);
        let window4 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row2 = window1.row(r);
            let row3 = window4.row(r);
            for c in (0..20).step_by(16) {
                let x5 = load_codes(isa, row3.lanes(c));
                let x6 = Bf16::decode(isa, x5);
                row2.put_lanes(c, array(isa, x6));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:451
        let v7: i64 = self.end.wrapping_sub(1_i64);
        let window8 = self.codes.until(v7).window_mut([0_i64, 0_i64], [6, 20]);
        let window11 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row9 = window8.row(r);
            let row10 = window11.row(r);
            for c in (0..20).step_by(16) {
                let x12 = load_codes(isa, row10.lanes(c));
                row9.put_lanes(c, store_codes(isa, x12));
            }
        }
        Ok(())
    }
}

const RAGGED_CODES_V3: Signature = Signature {
    kernel: "ragged_codes",
    dims: &["M"],
    views: &[
        ("from", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("codes", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
        ("values", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 20 }]),
    ],
};

/// `ragged_codes<f16>`.
///
struct RaggedCodesV3<'a> {
    end: i64,
    from: View<'a, [u8; 2], 2>,
    codes: ViewMut<'a, [u8; 2], 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 1],
}

impl RaggedCodesV3<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [1_i64, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedCodesV3<'_> {
    const KERNEL: &'static str = "ragged_codes";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:450
        let window1 = self.values.window_mut([0_i64, 0_i64], [6, 20]);
        let window4 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row2 = window1.row(r);
            let row3 = window4.row(r);
            for c in (0..20).step_by(16) {
                let x5 = load_codes(isa, row3.lanes(c));
                let x6 = F16::decode(isa, x5);
                row2.put_lanes(c, array(isa, x6));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:451
        let v7: i64 = self.end.wrapping_sub(1_i64);
        let window8 = self.codes.until(v7).window_mut([0_i64, 0_i64], [6, 20]);
        let window11 = self.from.until(self.end).window([1_i64, 0_i64], [6, 20]);
        for r in 0..6 {
            let row9 = window8.row(r);
            let row10 = window11.row(r);
            for c in (0..20).step_by(16) {
                let x12 = load_codes(isa, row10.lanes(c));
                row9.put_lanes(c, store_codes(isa, x12));
            }
        }
        Ok(())
    }
}

