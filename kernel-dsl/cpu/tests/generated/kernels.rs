// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{self, *};
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

/// A launch of `rms_norm`, kernel-dsl/cpu/tests/kernels/mod.rs:70.
pub struct RmsNorm<'a> {
    /// `In<f32, [T, N]>`.
    pub x: View<'a, f32, 2>,
    /// `In<f32, [N]>`.
    pub weight: View<'a, f32, 1>,
    /// `f32`.
    pub eps: f32,
    /// `Out<f32, [T, N]>`.
    pub out: ViewMut<'a, f32, 2>,
}

impl RmsNorm<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 3] = [&self.x.dims(), &self.weight.dims(), &self.out.dims()];
        let mut misfit = None;
        {
            match RMS_NORM_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = RmsNormV0 {
                        x: self.x,
                        weight: self.weight,
                        eps: self.eps,
                        out: &self.out,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("rms_norm"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("rms_norm", &[])))
    }
}

const RMS_NORM_V0: Signature = Signature {
    kernel: "rms_norm",
    dims: &["T", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("weight", &[Axis { dims: &[1], constant: 0 }]),
        ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `rms_norm`.
struct RmsNormV0<'a> {
    x: View<'a, f32, 2>,
    weight: View<'a, f32, 1>,
    eps: f32,
    out: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RmsNormV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [self.dims[0], 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RmsNormV0<'_> {
    const KERNEL: &'static str = "rms_norm";
    const SIZES: Sizes = Sizes { f32: 192, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t1, t9, t13] = carve(scratch.f32.as_mut(), [64, 64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:78
        let x2 = isa.splat(0.0_f32);
        for c in (0..48).step_by(16) {
            isa.store(x2, lanes_mut(t1, c));
        }
        for i3 in (0_i64..self.dims[1]).step_by(48) {
            let window5 = self.x.window([id[0], i3], [1, 48]);
            let row4 = window5.row(0);
            for c in (0..48).step_by(16) {
                let x6 = isa.load(&row4.lanes(c));
                let x7 = isa.load(lanes(t1, c));
                let x8 = isa.fma(x6, x6, x7);
                isa.store(x8, lanes_mut(t1, c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:82
        let mut acc10 = isa.splat(0.0_f32);
        for c in (0..48).step_by(16) {
            let x11 = isa.load(lanes(t1, c));
            acc10 = isa.add(acc10, x11);
        }
        t9[0] = isa.sum(acc10);
        let v12: f32 = (self.dims[1] as f32);
        let x14 = isa.load(lanes(t9, 0));
        let x15 = isa.splat(v12);
        let x16 = isa.div(x14, x15);
        let x17 = isa.splat(self.eps);
        let x18 = isa.add(x16, x17);
        let x19 = math::rsqrt(isa, x18);
        isa.store(x19, lanes_mut(t13, 0));
        // kernel-dsl/cpu/tests/kernels/mod.rs:83
        for i20 in (0_i64..self.dims[1]).step_by(48) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:84
            let window21 = self.out.window_mut([id[0], i20], [1, 48]);
            let row22 = window21.row(0);
            let window24 = self.x.window([id[0], i20], [1, 48]);
            let row23 = window24.row(0);
            let x26 = isa.splat(t13[0]);
            let window29 = self.weight.window([i20], [1, 48]);
            let row28 = window29.row(0);
            for c in (0..48).step_by(16) {
                let x25 = isa.load(&row23.lanes(c));
                let x27 = isa.mul(x25, x26);
                let x30 = isa.load(&row28.lanes(c));
                let x31 = isa.mul(x27, x30);
                row22.put_lanes(c, array(isa, x31));
            }
        }
        Ok(())
    }
}

/// A launch of `softmax`, kernel-dsl/cpu/tests/kernels/mod.rs:90.
pub struct Softmax<'a> {
    /// `InOut<f32, [M, N]>`.
    pub x: ViewMut<'a, f32, 2>,
    /// `Out<f32, [1, N]>`.
    pub largest: ViewMut<'a, f32, 2>,
}

impl Softmax<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 2] = [&self.x.dims(), &self.largest.dims()];
        let mut misfit = None;
        {
            match SOFTMAX_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = SoftmaxV0 { x: &self.x, largest: &self.largest, dims };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("softmax"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("softmax", &[])))
    }
}

const SOFTMAX_V0: Signature = Signature {
    kernel: "softmax",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("largest", &[Axis { dims: &[], constant: 1 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `softmax`.
struct SoftmaxV0<'a> {
    x: &'a ViewMut<'a, f32, 2>,
    largest: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl SoftmaxV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:89
        let v1: i64 = self.dims[0].wrapping_add(8_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 8_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for SoftmaxV0<'_> {
    const KERNEL: &'static str = "softmax";
    const SIZES: Sizes = Sizes { f32: 1792, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t5, t12, t16, t21, t25, t33] =
            carve(scratch.f32.as_mut(), [448, 192, 448, 192, 448, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:91
        let v4: i64 = id[0].wrapping_mul(8_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:92
        let window8 = self.x.window([v4, 0_i64], [8, 40]);
        let x10 = isa.splat(f32::NEG_INFINITY);
        for r in 0..8 {
            let row7 = window8.row(r);
            for c in (0..40).step_by(16) {
                let x6 = from_fn_mask(isa, |l| {
                    if (c + l) < 40 { (((c + l) as i64) < self.dims[1]) } else { false }
                });
                let x9 = isa.load(&row7.lanes(c));
                let x11 = isa.select(x6, x9, x10);
                isa.store(x11, lanes_mut(t5, r * 48 + c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:93
        for r in 0..8 {
            let mut acc13 = isa.splat(f32::NEG_INFINITY);
            for c in (0..40).step_by(16) {
                let x14 = isa.load(lanes(t5, r * 48 + c));
                let x15 = isa.select(first(isa, 40 - c), x14, isa.splat(f32::NEG_INFINITY));
                acc13 = isa.max(acc13, x15);
            }
            t12[r * 16] = fold(isa, acc13, max);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:94
        for r in 0..8 {
            let x18 = isa.splat(t12[r * 16]);
            for c in (0..40).step_by(16) {
                let x17 = isa.load(lanes(t5, r * 48 + c));
                let x19 = isa.sub(x17, x18);
                let x20 = math::exp(isa, x19);
                isa.store(x20, lanes_mut(t16, r * 48 + c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:95
        for r in 0..8 {
            let mut acc22 = isa.splat(0.0_f32);
            for c in (0..40).step_by(16) {
                let x23 = isa.load(lanes(t16, r * 48 + c));
                let x24 = isa.select(first(isa, 40 - c), x23, isa.splat(0.0_f32));
                acc22 = isa.add(acc22, x24);
            }
            t21[r * 16] = isa.sum(acc22);
        }
        for r in 0..8 {
            let x27 = isa.splat(t21[r * 16]);
            for c in (0..40).step_by(16) {
                let x26 = isa.load(lanes(t16, r * 48 + c));
                let x28 = isa.div(x26, x27);
                isa.store(x28, lanes_mut(t25, r * 48 + c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:96
        let window29 = self.x.window_mut([v4, 0_i64], [8, 40]);
        for r in 0..8 {
            let row30 = window29.row(r);
            for c in (0..40).step_by(16) {
                let x31 = isa.load(lanes(t25, r * 48 + c));
                row30.put_lanes(c, array(isa, x31));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:97
        let v32: bool = (v4 == 0_i64);
        if v32 {
            // kernel-dsl/cpu/tests/kernels/mod.rs:98
            for c in (0..40).step_by(16) {
                let mut acc34 = isa.splat(f32::NEG_INFINITY);
                for r in 0..8 {
                    let x35 = isa.load(lanes(t25, r * 48 + c));
                    acc34 = isa.max(acc34, x35);
                }
                isa.store(acc34, lanes_mut(t33, c));
            }
            let window36 = self.largest.window_mut([0_i64, 0_i64], [1, 40]);
            let row37 = window36.row(0);
            for c in (0..40).step_by(16) {
                let x38 = isa.load(lanes(t33, c));
                row37.put_lanes(c, array(isa, x38));
            }
        } else {
        }
        Ok(())
    }
}

/// A launch of `attend`, kernel-dsl/cpu/tests/kernels/mod.rs:104.
pub struct Attend<'a> {
    /// `In<f32, [M, 24]>`.
    pub q: View<'a, f32, 2>,
    /// `In<f32, [S, 24]>`.
    pub k: View<'a, f32, 2>,
    /// `Out<f32, [M, 16]>`.
    pub out: ViewMut<'a, f32, 2>,
    /// `Out<f32, [M]>`.
    pub lse: ViewMut<'a, f32, 1>,
}

impl Attend<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 4] =
            [&self.q.dims(), &self.k.dims(), &self.out.dims(), &self.lse.dims()];
        let mut misfit = None;
        {
            match ATTEND_V0.solve(&shapes) {
                Ok(dims) => {
                    let program =
                        AttendV0 { q: self.q, k: self.k, out: &self.out, lse: &self.lse, dims };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("attend"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("attend", &[])))
    }
}

const ATTEND_V0: Signature = Signature {
    kernel: "attend",
    dims: &["M", "S"],
    views: &[
        ("q", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 24 }]),
        ("k", &[Axis { dims: &[1], constant: 0 }, Axis { dims: &[], constant: 24 }]),
        ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 16 }]),
        ("lse", &[Axis { dims: &[0], constant: 0 }]),
    ],
};

/// `attend`.
struct AttendV0<'a> {
    q: View<'a, f32, 2>,
    k: View<'a, f32, 2>,
    out: &'a ViewMut<'a, f32, 2>,
    lse: &'a ViewMut<'a, f32, 1>,
    dims: [i64; 2],
}

impl AttendV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:103
        let v1: i64 = self.dims[0].wrapping_add(4_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 4_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for AttendV0<'_> {
    const KERNEL: &'static str = "attend";
    const SIZES: Sizes = Sizes { f32: 2368, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t5, t8, t10, t12, t16, t20, t22, t27, t30, t34, t39, t44, t48, t66] = carve(
            scratch.f32.as_mut(),
            [448, 64, 128, 64, 384, 192, 192, 64, 64, 192, 64, 64, 384, 64],
        );
        // kernel-dsl/cpu/tests/kernels/mod.rs:110
        let v4: i64 = id[0].wrapping_mul(4_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:111
        let window6 = self.q.window([v4, 0_i64], [4, 24]);
        for r in 0..24 {
            let x7 = from_fn(isa, |l| (window6.get(l, r) * 0.25_f32));
            isa.store(x7, lanes_mut(t5, r * 16));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:115
        let x9 = isa.splat(0.0_f32);
        isa.store(x9, lanes_mut(t8, 0));
        let x11 = isa.splat(0.0_f32);
        for r in 0..4 {
            isa.store(x11, lanes_mut(t10, r * 16));
        }
        let x13 = isa.splat(f32::NEG_INFINITY);
        isa.store(x13, lanes_mut(t12, 0));
        for i14 in (0_i64..self.dims[1]).step_by(10) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:117
            let slab15 = if let Some(slab) = self.k.slab([i14, 0_i64], [10, 24]) {
                slab
            } else {
                let window18 = self.k.window([i14, 0_i64], [10, 24]);
                for r in 0..10 {
                    let row17 = window18.row(r);
                    for c in (0..24).step_by(16) {
                        let x19 = isa.load(&row17.lanes(c));
                        isa.store(x19, lanes_mut(t16, r * 32 + c));
                    }
                }
                (&t16[..], 32)
            };
            let x21 = isa.splat(0.0_f32);
            for r in 0..10 {
                isa.store(x21, lanes_mut(t20, r * 16));
            }
            micro::dot(
                isa,
                Strided { data: &slab15.0[..], row: slab15.1, col: 1 },
                Rows { data: &t5[..], stride: 16, rows: 24 },
                [10, 4],
                &mut Acc { data: t20, stride: 16 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:118
            let x25 = isa.splat(f32::NEG_INFINITY);
            for r in 0..10 {
                let x23 = splat_mask(isa, ((r as i64).wrapping_add(i14) < self.dims[1]));
                let x24 = isa.load(lanes(t20, r * 16));
                let x26 = isa.select(x23, x24, x25);
                isa.store(x26, lanes_mut(t22, r * 16));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:119
            let mut acc28 = isa.splat(f32::NEG_INFINITY);
            for r in 0..10 {
                let x29 = isa.load(lanes(t22, r * 16));
                acc28 = isa.max(acc28, x29);
            }
            isa.store(acc28, lanes_mut(t27, 0));
            let x31 = isa.load(lanes(t12, 0));
            let x32 = isa.load(lanes(t27, 0));
            let x33 = isa.max(x31, x32);
            isa.store(x33, lanes_mut(t30, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:120
            let x36 = isa.load(lanes(t30, 0));
            for r in 0..10 {
                let x35 = isa.load(lanes(t22, r * 16));
                let x37 = isa.sub(x35, x36);
                let x38 = math::exp(isa, x37);
                isa.store(x38, lanes_mut(t34, r * 16));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:121
            let x40 = isa.load(lanes(t12, 0));
            let x41 = isa.load(lanes(t30, 0));
            let x42 = isa.sub(x40, x41);
            let x43 = math::exp(isa, x42);
            isa.store(x43, lanes_mut(t39, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:122
            let mut acc45 = isa.splat(0.0_f32);
            for r in 0..10 {
                let x46 = isa.load(lanes(t34, r * 16));
                acc45 = isa.add(acc45, x46);
            }
            isa.store(acc45, lanes_mut(t44, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:123
            let slab47 = if let Some(slab) = self.k.slab([i14, 0_i64], [10, 24]) {
                slab
            } else {
                let window50 = self.k.window([i14, 0_i64], [10, 24]);
                for r in 0..10 {
                    let row49 = window50.row(r);
                    for c in (0..24).step_by(16) {
                        let x51 = isa.load(&row49.lanes(c));
                        isa.store(x51, lanes_mut(t48, r * 32 + c));
                    }
                }
                (&t48[..], 32)
            };
            for r in 0..4 {
                let x52 = isa.load(lanes(t10, r * 16));
                let x53 = isa.splat(t39[r]);
                let x54 = isa.mul(x52, x53);
                isa.store(x54, lanes_mut(t10, r * 16));
            }
            micro::dot(
                isa,
                Strided { data: &t34[..], row: 1, col: 16 },
                Rows { data: &slab47.0[..], stride: slab47.1, rows: 10 },
                [4, 16],
                &mut Acc { data: t10, stride: 16 },
            );
            let x55 = isa.load(lanes(t8, 0));
            let x56 = isa.load(lanes(t39, 0));
            let x57 = isa.mul(x55, x56);
            let x58 = isa.load(lanes(t44, 0));
            let x59 = isa.add(x57, x58);
            isa.store(x59, lanes_mut(t8, 0));
            let x60 = isa.load(lanes(t30, 0));
            isa.store(x60, lanes_mut(t12, 0));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:126
        let window61 = self.out.window_mut([v4, 0_i64], [4, 16]);
        for r in 0..4 {
            let row62 = window61.row(r);
            let x63 = isa.load(lanes(t10, r * 16));
            let x64 = isa.splat(t8[r]);
            let x65 = isa.div(x63, x64);
            row62.put_lanes(0, array(isa, x65));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:127
        let x67 = isa.load(lanes(t12, 0));
        let x68 = isa.load(lanes(t8, 0));
        let x69 = math::ln(isa, x68);
        let x70 = isa.add(x67, x69);
        isa.store(x70, lanes_mut(t66, 0));
        let window71 = self.lse.window_mut([v4], [1, 4]);
        let row72 = window71.row(0);
        let x73 = isa.load(lanes(t66, 0));
        row72.put_lanes(0, array(isa, x73));
        Ok(())
    }
}

/// A launch of `bits`, kernel-dsl/cpu/tests/kernels/mod.rs:132.
pub struct Bits<'a> {
    /// `In<u32, [N]>`.
    pub a: View<'a, u32, 1>,
    /// `In<i32, [N]>`.
    pub b: View<'a, i32, 1>,
    /// `In<u64, [N]>`.
    pub c: View<'a, u64, 1>,
    /// `Out<u32, [N]>`.
    pub mixed: ViewMut<'a, u32, 1>,
    /// `Out<i32, [N]>`.
    pub signed: ViewMut<'a, i32, 1>,
    /// `Out<u64, [N]>`.
    pub wide: ViewMut<'a, u64, 1>,
    /// `Out<u64, [P]>`.
    pub digest: ViewMut<'a, u64, 1>,
    /// `InOut<u32, [1]>`.
    pub count: ViewMut<'a, u32, 1>,
}

impl Bits<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 8] = [
            &self.a.dims(),
            &self.b.dims(),
            &self.c.dims(),
            &self.mixed.dims(),
            &self.signed.dims(),
            &self.wide.dims(),
            &self.digest.dims(),
            &self.count.dims(),
        ];
        let mut misfit = None;
        {
            match BITS_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = BitsV0 {
                        a: self.a,
                        b: self.b,
                        c: self.c,
                        mixed: &self.mixed,
                        signed: &self.signed,
                        wide: &self.wide,
                        digest: &self.digest,
                        count: &self.count,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("bits"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("bits", &[])))
    }
}

const BITS_V0: Signature = Signature {
    kernel: "bits",
    dims: &["N", "P"],
    views: &[
        ("a", &[Axis { dims: &[0], constant: 0 }]),
        ("b", &[Axis { dims: &[0], constant: 0 }]),
        ("c", &[Axis { dims: &[0], constant: 0 }]),
        ("mixed", &[Axis { dims: &[0], constant: 0 }]),
        ("signed", &[Axis { dims: &[0], constant: 0 }]),
        ("wide", &[Axis { dims: &[0], constant: 0 }]),
        ("digest", &[Axis { dims: &[1], constant: 0 }]),
        ("count", &[Axis { dims: &[], constant: 1 }]),
    ],
};

/// `bits`.
struct BitsV0<'a> {
    a: View<'a, u32, 1>,
    b: View<'a, i32, 1>,
    c: View<'a, u64, 1>,
    mixed: &'a ViewMut<'a, u32, 1>,
    signed: &'a ViewMut<'a, i32, 1>,
    wide: &'a ViewMut<'a, u64, 1>,
    digest: &'a ViewMut<'a, u64, 1>,
    count: &'a ViewMut<'a, u32, 1>,
    dims: [i64; 2],
}

impl BitsV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:131
        let v1: i64 = self.dims[0].wrapping_add(20_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 20_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for BitsV0<'_> {
    const KERNEL: &'static str = "bits";
    const SIZES: Sizes = Sizes { f32: 0, i32: 192, i64: 0, u64: 128, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t5, t31, t61] = carve(scratch.i32.as_mut(), [64, 64, 64]);
        let [t53, t58] = carve(scratch.u64.as_mut(), [64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:142
        let v4: i64 = id[0].wrapping_mul(20_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:144
        let window7 = self.a.window([v4], [1, 20]);
        let row6 = window7.row(0);
        let x13 = isa.splat_i32((255_u32).cast_signed());
        for c in (0..20).step_by(16) {
            let x8 = isa.load_i32(&row6.lanes(c).map(u32::cast_signed));
            let x9 = isa.shr::<3>(x8);
            let x10 = isa.xor(x8, x9);
            let x11 = isa.shl::<5>(x8);
            let x12 = isa.add_i32(x10, x11);
            let x14 = isa.and(x8, x13);
            let x15 = isa.sub_i32(x12, x14);
            isa.store_i32(x15, lanes_mut(t5, c));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:146
        let window16 = self.mixed.window_mut([v4], [1, 20]);
        let row17 = window16.row(0);
        let window19 = self.a.window([v4], [1, 20]);
        let row18 = window19.row(0);
        let x23 = isa.splat_i32((3_u32).cast_signed());
        let x26 = isa.splat_i32((4000000000_u32).cast_signed());
        let x28 = isa.splat_i32((1_u32).cast_signed());
        for c in (0..20).step_by(16) {
            let x20 = isa.load_i32(&row18.lanes(c).map(u32::cast_signed));
            let x21 = isa.load_i32(lanes(t5, c));
            let x22 = isa.lt_i32(
                isa.xor(x20, isa.splat_i32(i32::MIN)),
                isa.xor(x21, isa.splat_i32(i32::MIN)),
            );
            let x24 = zip_i32(isa, x20, x23, |a, b| {
                Int::div(a.cast_unsigned(), b.cast_unsigned()).cast_signed()
            });
            let x25 = zip_i32(isa, x21, x24, |a, b| {
                a.cast_unsigned().max(b.cast_unsigned()).cast_signed()
            });
            let x27 = zip_i32(isa, x25, x26, |a, b| {
                a.cast_unsigned().min(b.cast_unsigned()).cast_signed()
            });
            let x29 = isa.or(x20, x28);
            let x30 = isa.select_i32(x22, x27, x29);
            row17.put_lanes(c, array_i32(isa, x30).map(i32::cast_unsigned));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:147
        let window33 = self.b.window([v4], [1, 20]);
        let row32 = window33.row(0);
        let x35 = isa.splat_i32(7_i32);
        let x40 = isa.splat_i32(3_i32);
        for c in (0..20).step_by(16) {
            let x34 = isa.load_i32(&row32.lanes(c));
            let x36 = zip_i32(isa, x34, x35, |a, b| Int::div(a, b));
            let x37 = isa.sub_i32(isa.splat_i32(0), x34);
            let x38 = isa.max_i32(x36, x37);
            let x39 = isa.sra::<2>(x34);
            let x41 = isa.mul_i32(x39, x40);
            let x42 = isa.add_i32(x38, x41);
            isa.store_i32(x42, lanes_mut(t31, c));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:148
        let window43 = self.signed.window_mut([v4], [1, 20]);
        let row44 = window43.row(0);
        let window46 = self.b.window([v4], [1, 20]);
        let row45 = window46.row(0);
        let x50 = isa.splat_i32(63_i32);
        for c in (0..20).step_by(16) {
            let x47 = isa.load_i32(&row45.lanes(c));
            let x48 = isa.load_i32(lanes(t31, c));
            let x49 = isa.not_mask(isa.lt_i32(x48, x47));
            let x51 = isa.and(x47, x50);
            let x52 = isa.select_i32(x49, x48, x51);
            row44.put_lanes(c, array_i32(isa, x52));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:149
        let window54 = self.c.window([v4], [1, 20]);
        let window55 = self.a.window([v4], [1, 20]);
        for c in 0..20 {
            t53[c] = ((Int::shl(window54.get(0, c), 7_u64) ^ Int::shr(window54.get(0, c), 9_u64))
                ^ (window55.get(0, c) as u64));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:150
        let window56 = self.wide.window_mut([v4], [1, 20]);
        let row57 = window56.row(0);
        for c in 0..20 {
            row57.put(c, t53[c]);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:151
        let mut acc59 = 0_u64;
        for c in 0..20 {
            acc59 = (acc59 ^ t53[c].wrapping_mul(3_u64));
        }
        t58[0] = acc59;
        let v60: u64 = t58[0];
        self.digest.put([id[0]], v60);
        // kernel-dsl/cpu/tests/kernels/mod.rs:153
        let window63 = self.a.window([v4], [1, 20]);
        let mut acc62 = 0_u32;
        for c in 0..20 {
            acc62 = acc62.wrapping_add(
                (if ((window63.get(0, c) & 1_u32) == 1_u32) { 1_u32 } else { 0_u32 }),
            );
        }
        t61[0] = (acc62).cast_signed();
        let v64: u32 = t61[0].cast_unsigned();
        {
            let new = v64;
            self.count.update([0_i64], |old| old.wrapping_add(new));
        }
        Ok(())
    }
}

/// A launch of `table`, kernel-dsl/cpu/tests/kernels/mod.rs:158.
pub struct Table<'a> {
    /// `In<f32, [P, N]>`.
    pub from: View<'a, f32, 2>,
    /// `In<i32, [R]>`.
    pub ids: View<'a, i32, 1>,
    /// `Out<f32, [R, N]>`.
    pub rows: ViewMut<'a, f32, 2>,
    /// `Out<f32, [R]>`.
    pub spots: ViewMut<'a, f32, 1>,
    /// `Out<i64, [P]>`.
    pub inverse: ViewMut<'a, i64, 1>,
}

impl Table<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 5] = [
            &self.from.dims(),
            &self.ids.dims(),
            &self.rows.dims(),
            &self.spots.dims(),
            &self.inverse.dims(),
        ];
        let mut misfit = None;
        {
            match TABLE_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = TableV0 {
                        from: self.from,
                        ids: self.ids,
                        rows: &self.rows,
                        spots: &self.spots,
                        inverse: &self.inverse,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("table"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("table", &[])))
    }
}

const TABLE_V0: Signature = Signature {
    kernel: "table",
    dims: &["P", "N", "R"],
    views: &[
        ("from", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("ids", &[Axis { dims: &[2], constant: 0 }]),
        ("rows", &[Axis { dims: &[2], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("spots", &[Axis { dims: &[2], constant: 0 }]),
        ("inverse", &[Axis { dims: &[0], constant: 0 }]),
    ],
};

/// `table`.
struct TableV0<'a> {
    from: View<'a, f32, 2>,
    ids: View<'a, i32, 1>,
    rows: &'a ViewMut<'a, f32, 2>,
    spots: &'a ViewMut<'a, f32, 1>,
    inverse: &'a ViewMut<'a, i64, 1>,
    dims: [i64; 3],
}

impl TableV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:157
        let v1: i64 = self.dims[2].wrapping_add(6_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 6_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for TableV0<'_> {
    const KERNEL: &'static str = "table";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 128, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t5, t7] = carve(scratch.i64.as_mut(), [64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:165
        let v4: i64 = id[0].wrapping_mul(6_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:166
        let window6 = self.ids.window([v4], [1, 6]);
        for c in 0..6 {
            t5[c] = (window6.get(0, c) as i64);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:167
        for c in 0..6 {
            t7[c] = (c as i64).wrapping_add(v4);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:169
        for r in 0..6 {
            let row8 = self.rows.window_mut([t7[r], 0_i64], [1, 20]).row(0);
            let row9 = self.from.window([t5[r], 0_i64], [1, 20]).row(0);
            for c in (0..20).step_by(16) {
                let x10 = isa.load(&row9.lanes(c));
                row8.put_lanes(c, array(isa, x10));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:170
        for c in 0..6 {
            self.spots.put([t7[c]], self.from.get([t5[c], Int::rem(t7[c], 3_i64)]));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:171
        for c in 0..6 {
            self.inverse.put(
                [(if ((t5[c] < 0_i64) | (t7[c] >= self.dims[2])) { (-1_i64) } else { t5[c] })],
                t7[c],
            );
        }
        Ok(())
    }
}

/// A launch of `control`, kernel-dsl/cpu/tests/kernels/mod.rs:176.
pub struct Control<'a> {
    /// `In<f32, [N]>`.
    pub x: View<'a, f32, 1>,
    /// `f32`.
    pub limit: f32,
    /// `Out<f32, [3, 8]>`.
    pub out: ViewMut<'a, f32, 2>,
}

impl Control<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 2] = [&self.x.dims(), &self.out.dims()];
        let mut misfit = None;
        {
            match CONTROL_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = ControlV0 { x: self.x, limit: self.limit, out: &self.out, dims };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("control"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("control", &[])))
    }
}

const CONTROL_V0: Signature = Signature {
    kernel: "control",
    dims: &["N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }]),
        ("out", &[Axis { dims: &[], constant: 3 }, Axis { dims: &[], constant: 8 }]),
    ],
};

/// `control`.
struct ControlV0<'a> {
    x: View<'a, f32, 1>,
    limit: f32,
    out: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 1],
}

impl ControlV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [1_i64, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for ControlV0<'_> {
    const KERNEL: &'static str = "control";
    const SIZES: Sizes = Sizes { f32: 320, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t2, t4, t12, t18, t19] = carve(scratch.f32.as_mut(), [64, 64, 64, 64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:181
        let mut v1: f32 = 0.0_f32;
        let x3 = isa.splat(1.0_f32);
        isa.store(x3, lanes_mut(t2, 0));
        let window6 = self.x.window([0_i64], [1, 8]);
        let row5 = window6.row(0);
        let x7 = isa.load(&row5.lanes(0));
        isa.store(x7, lanes_mut(t4, 0));
        let mut v8: i64 = 0_i64;
        for i9 in 0_i64..self.dims[0] {
            // kernel-dsl/cpu/tests/kernels/mod.rs:182
            let v10: f32 = self.x.get([i9]);
            // kernel-dsl/cpu/tests/kernels/mod.rs:183
            let v11: f32 = (v1 + v10);
            // kernel-dsl/cpu/tests/kernels/mod.rs:184
            let x13 = isa.load(lanes(t2, 0));
            let x14 = isa.splat(v10);
            let x15 = isa.add(x13, x14);
            isa.store(x15, lanes_mut(t12, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:187
            let v16: bool = (v11 < self.limit);
            let v17: i64;
            if v16 {
                // kernel-dsl/cpu/tests/kernels/mod.rs:188
                let v20: i64 = v8.wrapping_add(1_i64);
                let x21 = isa.load(lanes(t4, 0));
                let x22 = isa.splat(0.5_f32);
                let x23 = isa.mul(x21, x22);
                isa.store(x23, lanes_mut(t18, 0));
                let x24 = isa.load(lanes(t12, 0));
                isa.store(x24, lanes_mut(t19, 0));
                v17 = v20;
            } else {
                let x25 = isa.load(lanes(t4, 0));
                isa.store(x25, lanes_mut(t18, 0));
                let x26 = isa.load(lanes(t12, 0));
                let x27 = isa.load(lanes(t4, 0));
                let x28 = isa.sub(x26, x27);
                isa.store(x28, lanes_mut(t19, 0));
                v17 = v8;
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:193
            for i29 in (0_i64..v17).step_by(2) {
                // kernel-dsl/cpu/tests/kernels/mod.rs:194
                let v30: f32 = (i29 as f32);
                let x31 = isa.load(lanes(t19, 0));
                let x32 = isa.splat(v30);
                let x33 = isa.add(x31, x32);
                isa.store(x33, lanes_mut(t19, 0));
            }
            let x34 = isa.load(lanes(t18, 0));
            isa.store(x34, lanes_mut(t2, 0));
            let x35 = isa.load(lanes(t19, 0));
            isa.store(x35, lanes_mut(t4, 0));
            (v1, v8) = (v11, v17);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:197
        let window36 = self.out.window_mut([0_i64, 0_i64], [1, 8]);
        let row37 = window36.row(0);
        let x38 = isa.load(lanes(t2, 0));
        row37.put_lanes(0, array(isa, x38));
        // kernel-dsl/cpu/tests/kernels/mod.rs:198
        let window39 = self.out.window_mut([1_i64, 0_i64], [1, 8]);
        let row40 = window39.row(0);
        let x41 = isa.load(lanes(t4, 0));
        row40.put_lanes(0, array(isa, x41));
        // kernel-dsl/cpu/tests/kernels/mod.rs:199
        self.out.put([2_i64, 0_i64], v1);
        // kernel-dsl/cpu/tests/kernels/mod.rs:200
        let v42: f32 = (v8 as f32);
        self.out.put([2_i64, 1_i64], v42);
        Ok(())
    }
}

/// A launch of `recode`, kernel-dsl/cpu/tests/kernels/mod.rs:205.
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
struct RecodeV0<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, u8, 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:204
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
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:210
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:211
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:212
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
struct RecodeV1<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, u8, 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV1<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:204
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
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:210
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:211
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:212
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
struct RecodeV2<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, [u8; 2], 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV2<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:204
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
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:210
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:211
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:212
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
struct RecodeV3<'a> {
    x: View<'a, f32, 2>,
    codes: ViewMut<'a, [u8; 2], 2>,
    values: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl RecodeV3<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:204
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
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:210
        let v4: i64 = id[0].wrapping_mul(3_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:211
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:212
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

/// A launch of `order`, kernel-dsl/cpu/tests/kernels/mod.rs:217.
pub struct Order<'a> {
    /// `In<f32, [5, N]>`.
    pub x: View<'a, f32, 2>,
    /// `Out<f32, [5, 21]>`.
    pub prefix: ViewMut<'a, f32, 2>,
    /// `Out<f32, [5, 21]>`.
    pub down: ViewMut<'a, f32, 2>,
    /// `Out<i64, [5]>`.
    pub best: ViewMut<'a, i64, 1>,
    /// `Out<i64, [1, 21]>`.
    pub tallest: ViewMut<'a, i64, 2>,
    /// `Out<f32, [5, 32]>`.
    pub joined: ViewMut<'a, f32, 2>,
    /// `Out<f32, [6, 7]>`.
    pub flat: ViewMut<'a, f32, 2>,
    /// `Out<i64, [2, 21]>`.
    pub flags: ViewMut<'a, i64, 2>,
}

impl Order<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 8] = [
            &self.x.dims(),
            &self.prefix.dims(),
            &self.down.dims(),
            &self.best.dims(),
            &self.tallest.dims(),
            &self.joined.dims(),
            &self.flat.dims(),
            &self.flags.dims(),
        ];
        let mut misfit = None;
        {
            match ORDER_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = OrderV0 {
                        x: self.x,
                        prefix: &self.prefix,
                        down: &self.down,
                        best: &self.best,
                        tallest: &self.tallest,
                        joined: &self.joined,
                        flat: &self.flat,
                        flags: &self.flags,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("order"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("order", &[])))
    }
}

const ORDER_V0: Signature = Signature {
    kernel: "order",
    dims: &["N"],
    views: &[
        ("x", &[Axis { dims: &[], constant: 5 }, Axis { dims: &[0], constant: 0 }]),
        ("prefix", &[Axis { dims: &[], constant: 5 }, Axis { dims: &[], constant: 21 }]),
        ("down", &[Axis { dims: &[], constant: 5 }, Axis { dims: &[], constant: 21 }]),
        ("best", &[Axis { dims: &[], constant: 5 }]),
        ("tallest", &[Axis { dims: &[], constant: 1 }, Axis { dims: &[], constant: 21 }]),
        ("joined", &[Axis { dims: &[], constant: 5 }, Axis { dims: &[], constant: 32 }]),
        ("flat", &[Axis { dims: &[], constant: 6 }, Axis { dims: &[], constant: 7 }]),
        ("flags", &[Axis { dims: &[], constant: 2 }, Axis { dims: &[], constant: 21 }]),
    ],
};

/// `order`.
struct OrderV0<'a> {
    x: View<'a, f32, 2>,
    prefix: &'a ViewMut<'a, f32, 2>,
    down: &'a ViewMut<'a, f32, 2>,
    best: &'a ViewMut<'a, i64, 1>,
    tallest: &'a ViewMut<'a, i64, 2>,
    joined: &'a ViewMut<'a, f32, 2>,
    flat: &'a ViewMut<'a, f32, 2>,
    flags: &'a ViewMut<'a, i64, 2>,
    dims: [i64; 1],
}

impl OrderV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [1_i64, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for OrderV0<'_> {
    const KERNEL: &'static str = "order";
    const SIZES: Sizes = Sizes { f32: 576, i32: 0, i64: 192, u64: 0, u8: 384 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t1, t7, t27] = carve(scratch.f32.as_mut(), [192, 192, 192]);
        let [t13, t20] = carve(scratch.i64.as_mut(), [128, 64]);
        let [t39, t45, t49, t51] = carve(scratch.u8.as_mut(), [192, 64, 64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:228
        let window3 = self.x.window([0_i64, 0_i64], [5, 21]);
        for r in 0..5 {
            let mut acc2 = 0.0_f32;
            for c in 0..21 {
                acc2 = (acc2 + window3.get(r, c));
                t1[r * 32 + c] = acc2;
            }
        }
        let window4 = self.prefix.window_mut([0_i64, 0_i64], [5, 21]);
        for r in 0..5 {
            let row5 = window4.row(r);
            for c in (0..21).step_by(16) {
                let x6 = isa.load(lanes(t1, r * 32 + c));
                row5.put_lanes(c, array(isa, x6));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:229
        let window9 = self.x.window([0_i64, 0_i64], [5, 21]);
        for c in 0..21 {
            let mut acc8 = 0.0_f32;
            for r in 0..5 {
                acc8 = (acc8 + window9.get(r, c));
                t7[r * 32 + c] = acc8;
            }
        }
        let window10 = self.down.window_mut([0_i64, 0_i64], [5, 21]);
        for r in 0..5 {
            let row11 = window10.row(r);
            for c in (0..21).step_by(16) {
                let x12 = isa.load(lanes(t7, r * 32 + c));
                row11.put_lanes(c, array(isa, x12));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:230
        let window14 = self.x.window([0_i64, 0_i64], [5, 21]);
        for r in 0..5 {
            let mut at16 = 0_i64;
            let mut best15 = f32::NEG_INFINITY;
            for c in 0..21 {
                let x17 = window14.get(r, c);
                if x17 > best15 || x17.is_nan() && !best15.is_nan() {
                    best15 = x17;
                    at16 = c as i64;
                }
            }
            t13[r * 16] = at16;
        }
        let window18 = self.best.window_mut([0_i64], [1, 5]);
        let row19 = window18.row(0);
        for c in 0..5 {
            row19.put(c, t13[c * 16]);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:231
        let window21 = self.x.window([0_i64, 0_i64], [5, 21]);
        for c in 0..21 {
            let mut at23 = 0_i64;
            let mut best22 = f32::NEG_INFINITY;
            for r in 0..5 {
                let x24 = window21.get(r, c);
                if x24 > best22 || x24.is_nan() && !best22.is_nan() {
                    best22 = x24;
                    at23 = r as i64;
                }
            }
            t20[c] = at23;
        }
        let window25 = self.tallest.window_mut([0_i64, 0_i64], [1, 21]);
        let row26 = window25.row(0);
        for c in 0..21 {
            row26.put(c, t20[c]);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:232
        let window29 = self.x.window([0_i64, 0_i64], [5, 21]);
        for r in 0..5 {
            let row28 = window29.row(r);
            let x30 = isa.load(&row28.lanes(2));
            isa.store(x30, lanes_mut(t27, r * 32));
        }
        let window31 = self.x.window([0_i64, 0_i64], [5, 21]);
        for r in 0..5 {
            for c in 0..21 {
                t27[r * 32 + (c + 11)] = window31.get(r, c).abs();
            }
        }
        let window32 = self.joined.window_mut([0_i64, 0_i64], [5, 32]);
        for r in 0..5 {
            let row33 = window32.row(r);
            for c in (0..32).step_by(16) {
                let x34 = isa.load(lanes(t27, r * 32 + c));
                row33.put_lanes(c, array(isa, x34));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:233
        let window35 = self.flat.window_mut([0_i64, 0_i64], [6, 7]);
        let window37 = self.x.window([0_i64, 0_i64], [5, 21]);
        for r in 0..6 {
            let row36 = window35.row(r);
            let x38 = from_fn(isa, |l| window37.get(((r * 7 + l) % 3), ((r * 7 + l) / 3)));
            row36.put_lanes(0, array(isa, x38));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:234
        let window41 = self.x.window([0_i64, 0_i64], [5, 21]);
        let x43 = isa.splat(0.25_f32);
        for r in 0..5 {
            let row40 = window41.row(r);
            for c in (0..21).step_by(16) {
                let x42 = isa.load(&row40.lanes(c));
                let x44 = isa.lt(x43, x42);
                store_mask(isa, x44, lanes_mut(t39, r * 32 + c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:236
        for c in 0..21 {
            let mut acc46 = true;
            for r in 0..5 {
                acc46 = (acc46 & (t39[r * 32 + c] != 0));
            }
            t45[c] = u8::from(acc46);
        }
        let window47 = self.flags.window_mut([0_i64, 0_i64], [1, 21]);
        let row48 = window47.row(0);
        for c in 0..21 {
            row48.put(c, (if (t45[c] != 0) { 0_i64.wrapping_add(1_i64) } else { 0_i64 }));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:237
        for c in 0..21 {
            let mut acc50 = false;
            for r in 0..5 {
                acc50 = (acc50 | (t39[r * 32 + c] != 0));
            }
            t49[c] = u8::from(acc50);
        }
        let window53 = self.x.window([0_i64, 0_i64], [5, 21]);
        for c in 0..21 {
            let mut acc52 = false;
            for r in 0..5 {
                acc52 = (acc52 | window53.get(r, c).is_nan());
            }
            t51[c] = u8::from(acc52);
        }
        let window54 = self.flags.window_mut([1_i64, 0_i64], [1, 21]);
        let row55 = window54.row(0);
        for c in 0..21 {
            row55.put(
                c,
                (if ((t49[c] != 0) & (!(t51[c] != 0))) {
                    0_i64.wrapping_add(1_i64)
                } else {
                    0_i64
                }),
            );
        }
        Ok(())
    }
}

/// A launch of `elementary`, kernel-dsl/cpu/tests/kernels/mod.rs:242.
pub struct Elementary<'a> {
    /// `In<f32, [M, 18]>`.
    pub x: View<'a, f32, 2>,
    /// `Out<f32, [M, 12, 18]>`.
    pub out: ViewMut<'a, f32, 3>,
}

impl Elementary<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 2] = [&self.x.dims(), &self.out.dims()];
        let mut misfit = None;
        {
            match ELEMENTARY_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = ElementaryV0 { x: self.x, out: &self.out, dims };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("elementary"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("elementary", &[])))
    }
}

const ELEMENTARY_V0: Signature = Signature {
    kernel: "elementary",
    dims: &["M"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 18 }]),
        (
            "out",
            &[
                Axis { dims: &[0], constant: 0 },
                Axis { dims: &[], constant: 12 },
                Axis { dims: &[], constant: 18 },
            ],
        ),
    ],
};

/// `elementary`.
struct ElementaryV0<'a> {
    x: View<'a, f32, 2>,
    out: &'a ViewMut<'a, f32, 3>,
    dims: [i64; 1],
}

impl ElementaryV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [self.dims[0], 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for ElementaryV0<'_> {
    const KERNEL: &'static str = "elementary";
    const SIZES: Sizes = Sizes { f32: 64, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        let [t1] = carve(scratch.f32.as_mut(), [64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:245
        let window3 = self.x.window([id[0], 0_i64], [1, 18]);
        let row2 = window3.row(0);
        let x6 = isa.splat(0.001_f32);
        for c in (0..18).step_by(16) {
            let x4 = isa.load(&row2.lanes(c));
            let x5 = isa.abs(x4);
            let x7 = isa.add(x5, x6);
            isa.store(x7, lanes_mut(t1, c));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:246
        let window8 = self.out.window_mut([id[0], 0_i64, 0_i64], [1, 18]);
        let row9 = window8.row(0);
        let window11 = self.x.window([id[0], 0_i64], [1, 18]);
        let row10 = window11.row(0);
        for c in (0..18).step_by(16) {
            let x12 = isa.load(&row10.lanes(c));
            let x13 = math::exp(isa, x12);
            row9.put_lanes(c, array(isa, x13));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:247
        let window14 = self.out.window_mut([id[0], 1_i64, 0_i64], [1, 18]);
        let row15 = window14.row(0);
        let window17 = self.x.window([id[0], 0_i64], [1, 18]);
        let row16 = window17.row(0);
        for c in (0..18).step_by(16) {
            let x18 = isa.load(&row16.lanes(c));
            let x19 = math::exp2(isa, x18);
            row15.put_lanes(c, array(isa, x19));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:248
        let window20 = self.out.window_mut([id[0], 2_i64, 0_i64], [1, 18]);
        let row21 = window20.row(0);
        for c in (0..18).step_by(16) {
            let x22 = isa.load(lanes(t1, c));
            let x23 = math::ln(isa, x22);
            row21.put_lanes(c, array(isa, x23));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:249
        let window24 = self.out.window_mut([id[0], 3_i64, 0_i64], [1, 18]);
        let row25 = window24.row(0);
        for c in (0..18).step_by(16) {
            let x26 = isa.load(lanes(t1, c));
            let x27 = math::log2(isa, x26);
            row25.put_lanes(c, array(isa, x27));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:250
        let window28 = self.out.window_mut([id[0], 4_i64, 0_i64], [1, 18]);
        let row29 = window28.row(0);
        let window31 = self.x.window([id[0], 0_i64], [1, 18]);
        let row30 = window31.row(0);
        for c in (0..18).step_by(16) {
            let x32 = isa.load(&row30.lanes(c));
            let x33 = math::sin(isa, x32);
            row29.put_lanes(c, array(isa, x33));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:251
        let window34 = self.out.window_mut([id[0], 5_i64, 0_i64], [1, 18]);
        let row35 = window34.row(0);
        let window37 = self.x.window([id[0], 0_i64], [1, 18]);
        let row36 = window37.row(0);
        for c in (0..18).step_by(16) {
            let x38 = isa.load(&row36.lanes(c));
            let x39 = math::cos(isa, x38);
            row35.put_lanes(c, array(isa, x39));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:252
        let window40 = self.out.window_mut([id[0], 6_i64, 0_i64], [1, 18]);
        let row41 = window40.row(0);
        for c in (0..18).step_by(16) {
            let x42 = isa.load(lanes(t1, c));
            let x43 = isa.sqrt(x42);
            row41.put_lanes(c, array(isa, x43));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:253
        let window44 = self.out.window_mut([id[0], 7_i64, 0_i64], [1, 18]);
        let row45 = window44.row(0);
        for c in (0..18).step_by(16) {
            let x46 = isa.load(lanes(t1, c));
            let x47 = math::rsqrt(isa, x46);
            let x48 = math::recip(isa, x46);
            let x49 = isa.add(x47, x48);
            row45.put_lanes(c, array(isa, x49));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:254
        let window50 = self.out.window_mut([id[0], 8_i64, 0_i64], [1, 18]);
        let row51 = window50.row(0);
        let window53 = self.x.window([id[0], 0_i64], [1, 18]);
        let row52 = window53.row(0);
        let x55 = isa.splat(4.0_f32);
        let x58 = isa.splat(4.0_f32);
        for c in (0..18).step_by(16) {
            let x54 = isa.load(&row52.lanes(c));
            let x56 = isa.mul(x54, x55);
            let x57 = isa.floor(x56);
            let x59 = isa.mul(x54, x58);
            let x60 = isa.round(x59);
            let x61 = isa.sub(x57, x60);
            row51.put_lanes(c, array(isa, x61));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:255
        let window62 = self.out.window_mut([id[0], 9_i64, 0_i64], [1, 18]);
        let row63 = window62.row(0);
        let window65 = self.x.window([id[0], 0_i64], [1, 18]);
        let row64 = window65.row(0);
        let x67 = isa.splat(1000.0_f32);
        for c in (0..18).step_by(16) {
            let x66 = isa.load(&row64.lanes(c));
            let x68 = isa.mul(x66, x67);
            let x69 = to_i32(isa, x68);
            let x70 = isa.to_f32(x69);
            row63.put_lanes(c, array(isa, x70));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:256
        let window71 = self.out.window_mut([id[0], 10_i64, 0_i64], [1, 18]);
        let row72 = window71.row(0);
        let window74 = self.x.window([id[0], 0_i64], [1, 18]);
        let row73 = window74.row(0);
        let x77 = isa.splat_i32((2147483647_u32).cast_signed());
        for c in (0..18).step_by(16) {
            let x75 = isa.load(&row73.lanes(c));
            let x76 = isa.bits(x75);
            let x78 = isa.and(x76, x77);
            let x79 = isa.from_bits(x78);
            row72.put_lanes(c, array(isa, x79));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:257
        let v80: f32 = self.x.get([id[0], 0_i64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:258
        let v81: f32 = one(isa, v80, |x| math::exp(isa, x));
        let v82: f32 = one(isa, v80, |x| math::sin(isa, x));
        let v83: f32 = (v81 + v82);
        self.out.put([id[0], 11_i64, 0_i64], v83);
        Ok(())
    }
}

/// A launch of `checked`, kernel-dsl/cpu/tests/kernels/mod.rs:263.
pub struct Checked<'a> {
    /// `In<i32, [M, N]>`.
    pub x: View<'a, i32, 2>,
    /// `Out<i32, [M, N]>`.
    pub out: ViewMut<'a, i32, 2>,
}

impl Checked<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 2] = [&self.x.dims(), &self.out.dims()];
        let mut misfit = None;
        {
            match CHECKED_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = CheckedV0 { x: self.x, out: &self.out, dims };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("checked"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        {
            match CHECKED_V1.solve(&shapes) {
                Ok(dims) => {
                    let program = CheckedV1 { x: self.x, out: &self.out, dims };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("checked"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("checked", &[])))
    }
}

const CHECKED_V0: Signature = Signature {
    kernel: "checked",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `checked[WIDTH=8]`.
struct CheckedV0<'a> {
    x: View<'a, i32, 2>,
    out: &'a ViewMut<'a, i32, 2>,
    dims: [i64; 2],
}

impl CheckedV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [self.dims[0], 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:264
        let v1: bool = (self.dims[1] <= 8_i64);
        if !v1 {
            return Err(AssertFailed { message: "rows are as wide as a variant" });
        }
        Ok(())
    }
}

impl Program for CheckedV0<'_> {
    const KERNEL: &'static str = "checked";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:264
        let v1: bool = (self.dims[1] <= 8_i64);
        if !v1 {
            return Err(AssertFailed { message: "rows are as wide as a variant" });
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:267
        let window3 = self.x.window([id[0], 0_i64], [1, 8]);
        let row2 = window3.row(0);
        let x4 = isa.load_i32(&row2.lanes(0));
        let x5 = isa.splat_i32(0_i32);
        let x6 = isa.not_mask(isa.lt_i32(x4, x5));
        if !isa.mask_bits(x6) & first_bits(8 - 0) != 0 {
            return Err(AssertFailed { message: "`x` counts" });
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:268
        let window7 = self.out.window_mut([id[0], 0_i64], [1, 8]);
        let row8 = window7.row(0);
        let window10 = self.x.window([id[0], 0_i64], [1, 8]);
        let row9 = window10.row(0);
        let x11 = isa.load_i32(&row9.lanes(0));
        let x12 = isa.splat_i32(2_i32);
        let x13 = isa.mul_i32(x11, x12);
        row8.put_lanes(0, array_i32(isa, x13));
        Ok(())
    }
}

const CHECKED_V1: Signature = Signature {
    kernel: "checked",
    dims: &["M", "N"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
    ],
};

/// `checked[WIDTH=24]`.
struct CheckedV1<'a> {
    x: View<'a, i32, 2>,
    out: &'a ViewMut<'a, i32, 2>,
    dims: [i64; 2],
}

impl CheckedV1<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [self.dims[0], 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:264
        let v1: bool = (self.dims[1] <= 24_i64);
        if !v1 {
            return Err(AssertFailed { message: "rows are as wide as a variant" });
        }
        Ok(())
    }
}

impl Program for CheckedV1<'_> {
    const KERNEL: &'static str = "checked";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(&self, isa: I, id: [i64; 3], scratch: &mut Scratch) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:264
        let v1: bool = (self.dims[1] <= 24_i64);
        if !v1 {
            return Err(AssertFailed { message: "rows are as wide as a variant" });
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:267
        let window3 = self.x.window([id[0], 0_i64], [1, 24]);
        let row2 = window3.row(0);
        let x5 = isa.splat_i32(0_i32);
        for c in (0..24).step_by(16) {
            let x4 = isa.load_i32(&row2.lanes(c));
            let x6 = isa.not_mask(isa.lt_i32(x4, x5));
            if !isa.mask_bits(x6) & first_bits(24 - c) != 0 {
                return Err(AssertFailed { message: "`x` counts" });
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:268
        let window7 = self.out.window_mut([id[0], 0_i64], [1, 24]);
        let row8 = window7.row(0);
        let window10 = self.x.window([id[0], 0_i64], [1, 24]);
        let row9 = window10.row(0);
        let x12 = isa.splat_i32(2_i32);
        for c in (0..24).step_by(16) {
            let x11 = isa.load_i32(&row9.lanes(c));
            let x13 = isa.mul_i32(x11, x12);
            row8.put_lanes(c, array_i32(isa, x13));
        }
        Ok(())
    }
}
