//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

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

/// `f32`.
#[derive(Debug, Clone, Copy)]
pub struct F32;

impl Decode for F32 {
    const BITS: usize = 32;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(codes)
    }
}

/// `e2m1` as integers.
#[derive(Debug, Clone, Copy)]
pub struct E2m1Integers;

impl IntCodes for E2m1Integers {
    const TABLE: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];
    const UNIT: f32 = 0.5;
    const OFFSET: u8 = 12;
}

/// `i4` as integers.
#[derive(Debug, Clone, Copy)]
pub struct I4Integers;

impl IntCodes for I4Integers {
    const TABLE: [i8; 16] = [-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7];
    const UNIT: f32 = 1.0;
    const OFFSET: u8 = 8;
}

/// Scales of Bf16.
#[derive(Debug, Clone, Copy)]
pub struct ScaleBf16;

impl Decode for ScaleBf16 {
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

/// Scales of F32.
#[derive(Debug, Clone, Copy)]
pub struct ScaleF32;

impl Decode for ScaleF32 {
    const BITS: usize = 32;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        isa.from_bits(codes)
    }
}

/// Scales of Ue8m0.
#[derive(Debug, Clone, Copy)]
pub struct ScaleUe8m0;

impl Decode for ScaleUe8m0 {
    const BITS: usize = 8;

    #[inline(always)]
    fn decode<I: Isa>(isa: I, codes: I::I32) -> I::F32 {
        let stored = isa.and(codes, isa.splat_i32(255)); // 0xff
        let magnitude = isa.shl::<23>(stored);
        let magnitude = isa.max_i32(magnitude, isa.splat_i32(4194304));
        let special = isa.lt_i32(isa.splat_i32(254), stored);
        let nan = isa.splat_i32(0x7fc00000);
        let magnitude = isa.select_i32(special, nan, magnitude);
        isa.from_bits(magnitude)
    }
}

/// Calls the micro-kernel of the weights' format, which the launch has checked.
#[inline(never)]
fn scaled_integers<I: Isa>(
    isa: I,
    x: A16Rows<'_>,
    w: Option<&PackedWeights>,
    block: ScaledBlock,
    acc: &mut Acc<'_>,
) {
    let Some(weights) = w else { return };
    match weights.format().name {
        "mxfp4" => scaled_int::<I, E2m1Integers, ScaleUe8m0>(isa, x, w, block, acc),
        "int4-g32-zp" => scaled_int::<I, I4Integers, ScaleBf16>(isa, x, w, block, acc),
        other => unreachable!("weights in {other}"),
    }
}

/// Calls the micro-kernel of the weights' format, which the launch has checked.
#[inline(never)]
fn scaled_floats<I: Isa>(
    isa: I,
    x: &View<'_, f32, 2>,
    w: Option<&PackedWeights>,
    block: ScaledBlock,
    acc: &mut Acc<'_>,
) {
    let Some(weights) = w else { return };
    match weights.format().name {
        "fp8-128x128" => scaled_float::<I, E4m3, ScaleF32>(isa, x, w, block, acc),
        "f32" => scaled_float::<I, F32, NoScale>(isa, x, w, block, acc),
        other => unreachable!("weights in {other}"),
    }
}

/// A launch of `ragged_product`, kernel-dsl/cpu/tests/kernels/mod.rs:456.
pub struct RaggedProduct<'a> {
    /// `In<f32, [M, K]>`.
    pub x: View<'a, f32, 2>,
    /// `In<packed, [N, K]>`.
    pub w: PackedView<'a, 2>,
    /// `In<i64, [S, 2]>`.
    pub bounds: View<'a, i64, 2>,
    /// `Out<f32, [M, N]>`.
    pub y: ViewMut<'a, f32, 2>,
    /// `Out<f32, [M, N]>`.
    pub head: ViewMut<'a, f32, 2>,
}

impl RaggedProduct<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 5] = [&self.x.dims(), &self.w.dims(), &self.bounds.dims(), &self.y.dims(), &self.head.dims()];
        let mut misfit = None;
        if self.w.format() == "f32" || self.w.format() == "fp8-128x128" {
            match RAGGED_PRODUCT_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = RaggedProductV0 {
                        x: self.x,
                        w: self.w,
                        bounds: self.bounds,
                        y: &self.y,
                        head: &self.head,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged_product"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        if self.w.format() == "int4-g32-zp" || self.w.format() == "mxfp4" {
            match RAGGED_PRODUCT_V1.solve(&shapes) {
                Ok(dims) => {
                    let x_for_w = cpu.quantize(0, &self.x, self.w.activation_group());
                    let program = RaggedProductV1 {
                        x: self.x,
                        w: self.w,
                        bounds: self.bounds,
                        y: &self.y,
                        head: &self.head,
                        x_for_w: x_for_w.rows(),
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged_product"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("ragged_product", &[self.w.format()])))
    }
}

const RAGGED_PRODUCT_V0: Signature = Signature {
    kernel: "ragged_product",
    dims: &["M", "K", "N", "S"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("w", &[Axis { dims: &[2], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("bounds", &[Axis { dims: &[3], constant: 0 }, Axis { dims: &[], constant: 2 }]),
        ("y", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[2], constant: 0 }]),
        ("head", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[2], constant: 0 }]),
    ],
};

/// `ragged_product<f32>`.
///
/// `ragged_product<fp8-128x128>`.
///
struct RaggedProductV0<'a> {
    x: View<'a, f32, 2>,
    w: PackedView<'a, 2>,
    bounds: View<'a, i64, 2>,
    y: &'a ViewMut<'a, f32, 2>,
    head: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 4],
}

impl RaggedProductV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:455
        let v1: i64 = self.dims[2].wrapping_add(32_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 32_i64);
        [v3, self.dims[3], 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedProductV0<'_> {
    const KERNEL: &'static str = "ragged_product";
    const SIZES: Sizes = Sizes { f32: 640, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t8, t13] = carve(scratch.f32.as_mut(), [320, 320]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:463
        let v4: i64 = id[0].wrapping_mul(32_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:464
        let v5: i64 = self.bounds.get([id[1], 0_i64]);
        let v6: i64 = self.bounds.get([id[1], 1_i64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:466
        for i7 in (v5..v6).step_by(8) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:468
            let x9 = isa.splat(0.0_f32);
            for r in 0..8 {
                for c in (0..32).step_by(16) {
                    isa.store(x9, lanes_mut(t8, r * 32 + c));
                }
            }
            scaled_floats(
                isa,
                &self.x.until(v6),
                self.w.matrix(),
                ScaledBlock {
                    rows: (i7, 8),
                    weights: (v4, 32),
                    cols: (0_i64, whole_steps(0_i64, self.dims[1], 128)),
                },
                &mut Acc { data: t8, stride: 32 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:472
            let window10 = self.y.until(v6).window_mut([i7, v4], [8, 32]);
            for r in 0..8 {
                let row11 = window10.row(r);
                for c in (0..32).step_by(16) {
                    let x12 = isa.load(lanes(t8, r * 32 + c));
                    row11.put_lanes(c, array(isa, x12));
                }
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:474
            let x14 = isa.splat(0.0_f32);
            for r in 0..8 {
                for c in (0..32).step_by(16) {
                    isa.store(x14, lanes_mut(t13, r * 32 + c));
                }
            }
            scaled_floats(
                isa,
                &self.x.until(v6),
                self.w.matrix(),
                ScaledBlock {
                    rows: (i7, 8),
                    weights: (v4, 32),
                    cols: (0_i64, 0_i64 + 128),
                },
                &mut Acc { data: t13, stride: 32 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:475
            let window15 = self.head.until(v6).window_mut([i7, v4], [8, 32]);
            for r in 0..8 {
                let row16 = window15.row(r);
                for c in (0..32).step_by(16) {
                    let x17 = isa.load(lanes(t13, r * 32 + c));
                    row16.put_lanes(c, array(isa, x17));
                }
            }
        }
        Ok(())
    }
}

const RAGGED_PRODUCT_V1: Signature = Signature {
    kernel: "ragged_product",
    dims: &["M", "K", "N", "S"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("w", &[Axis { dims: &[2], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("bounds", &[Axis { dims: &[3], constant: 0 }, Axis { dims: &[], constant: 2 }]),
        ("y", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[2], constant: 0 }]),
        ("head", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[2], constant: 0 }]),
    ],
};

/// `ragged_product<int4-g32-zp>`.
///
/// `ragged_product<mxfp4>`.
///
struct RaggedProductV1<'a> {
    x: View<'a, f32, 2>,
    w: PackedView<'a, 2>,
    bounds: View<'a, i64, 2>,
    y: &'a ViewMut<'a, f32, 2>,
    head: &'a ViewMut<'a, f32, 2>,
    x_for_w: A16Rows<'a>,
    dims: [i64; 4],
}

impl RaggedProductV1<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:455
        let v1: i64 = self.dims[2].wrapping_add(32_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 32_i64);
        [v3, self.dims[3], 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedProductV1<'_> {
    const KERNEL: &'static str = "ragged_product";
    const SIZES: Sizes = Sizes { f32: 640, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t8, t13] = carve(scratch.f32.as_mut(), [320, 320]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:463
        let v4: i64 = id[0].wrapping_mul(32_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:464
        let v5: i64 = self.bounds.get([id[1], 0_i64]);
        let v6: i64 = self.bounds.get([id[1], 1_i64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:466
        for i7 in (v5..v6).step_by(8) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:468
            let x9 = isa.splat(0.0_f32);
            for r in 0..8 {
                for c in (0..32).step_by(16) {
                    isa.store(x9, lanes_mut(t8, r * 32 + c));
                }
            }
            scaled_integers(
                isa,
                self.x_for_w.until(v6),
                self.w.matrix(),
                ScaledBlock {
                    rows: (i7, 8),
                    weights: (v4, 32),
                    cols: (0_i64, whole_steps(0_i64, self.dims[1], 128)),
                },
                &mut Acc { data: t8, stride: 32 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:472
            let window10 = self.y.until(v6).window_mut([i7, v4], [8, 32]);
            for r in 0..8 {
                let row11 = window10.row(r);
                for c in (0..32).step_by(16) {
                    let x12 = isa.load(lanes(t8, r * 32 + c));
                    row11.put_lanes(c, array(isa, x12));
                }
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:474
            let x14 = isa.splat(0.0_f32);
            for r in 0..8 {
                for c in (0..32).step_by(16) {
                    isa.store(x14, lanes_mut(t13, r * 32 + c));
                }
            }
            scaled_integers(
                isa,
                self.x_for_w.until(v6),
                self.w.matrix(),
                ScaledBlock {
                    rows: (i7, 8),
                    weights: (v4, 32),
                    cols: (0_i64, 0_i64 + 128),
                },
                &mut Acc { data: t13, stride: 32 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:475
            let window15 = self.head.until(v6).window_mut([i7, v4], [8, 32]);
            for r in 0..8 {
                let row16 = window15.row(r);
                for c in (0..32).step_by(16) {
                    let x17 = isa.load(lanes(t13, r * 32 + c));
                    row16.put_lanes(c, array(isa, x17));
                }
            }
        }
        Ok(())
    }
}

