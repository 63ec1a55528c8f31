//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `elementary`, kernel-dsl/cpu/tests/kernels/mod.rs:344.
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
                    let program = ElementaryV0 {
                        x: self.x,
                        out: &self.out,
                        dims,
                    };
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
        ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 12 }, Axis { dims: &[], constant: 18 }]),
    ],
};

/// `elementary`.
///
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t1] = carve(scratch.f32.as_mut(), [64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:347
        let window3 = self.x.window([id[0], 0_i64], [1, 18]);
        let row2 = window3.row(0);
        let x6 = isa.splat(0.001_f32);
        for c in (0..18).step_by(16) {
            let x4 = isa.load(&row2.lanes(c));
            let x5 = isa.abs(x4);
            let x7 = isa.add(x5, x6);
            isa.store(x7, lanes_mut(t1, c));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:348
        let window8 = self.out.window_mut([id[0], 0_i64, 0_i64], [1, 18]);
        let row9 = window8.row(0);
        let window11 = self.x.window([id[0], 0_i64], [1, 18]);
        let row10 = window11.row(0);
        for c in (0..18).step_by(16) {
            let x12 = isa.load(&row10.lanes(c));
            let x13 = math::exp(isa, x12);
            row9.put_lanes(c, array(isa, x13));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:349
        let window14 = self.out.window_mut([id[0], 1_i64, 0_i64], [1, 18]);
        let row15 = window14.row(0);
        let window17 = self.x.window([id[0], 0_i64], [1, 18]);
        let row16 = window17.row(0);
        for c in (0..18).step_by(16) {
            let x18 = isa.load(&row16.lanes(c));
            let x19 = math::exp2(isa, x18);
            row15.put_lanes(c, array(isa, x19));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:350
        let window20 = self.out.window_mut([id[0], 2_i64, 0_i64], [1, 18]);
        let row21 = window20.row(0);
        for c in (0..18).step_by(16) {
            let x22 = isa.load(lanes(t1, c));
            let x23 = math::ln(isa, x22);
            row21.put_lanes(c, array(isa, x23));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:351
        let window24 = self.out.window_mut([id[0], 3_i64, 0_i64], [1, 18]);
        let row25 = window24.row(0);
        for c in (0..18).step_by(16) {
            let x26 = isa.load(lanes(t1, c));
            let x27 = math::log2(isa, x26);
            row25.put_lanes(c, array(isa, x27));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:352
        let window28 = self.out.window_mut([id[0], 4_i64, 0_i64], [1, 18]);
        let row29 = window28.row(0);
        let window31 = self.x.window([id[0], 0_i64], [1, 18]);
        let row30 = window31.row(0);
        for c in (0..18).step_by(16) {
            let x32 = isa.load(&row30.lanes(c));
            let x33 = math::sin(isa, x32);
            row29.put_lanes(c, array(isa, x33));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:353
        let window34 = self.out.window_mut([id[0], 5_i64, 0_i64], [1, 18]);
        let row35 = window34.row(0);
        let window37 = self.x.window([id[0], 0_i64], [1, 18]);
        let row36 = window37.row(0);
        for c in (0..18).step_by(16) {
            let x38 = isa.load(&row36.lanes(c));
            let x39 = math::cos(isa, x38);
            row35.put_lanes(c, array(isa, x39));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:354
        let window40 = self.out.window_mut([id[0], 6_i64, 0_i64], [1, 18]);
        let row41 = window40.row(0);
        for c in (0..18).step_by(16) {
            let x42 = isa.load(lanes(t1, c));
            let x43 = isa.sqrt(x42);
            row41.put_lanes(c, array(isa, x43));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:355
        let window44 = self.out.window_mut([id[0], 7_i64, 0_i64], [1, 18]);
        let row45 = window44.row(0);
        for c in (0..18).step_by(16) {
            let x46 = isa.load(lanes(t1, c));
            let x47 = math::rsqrt(isa, x46);
            let x48 = math::recip(isa, x46);
            let x49 = isa.add(x47, x48);
            row45.put_lanes(c, array(isa, x49));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:356
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:357
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:358
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:359
        let v80: f32 = self.x.get([id[0], 0_i64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:360
        let v81: f32 = one(isa, v80, |x| math::exp(isa, x));
        let v82: f32 = one(isa, v80, |x| math::sin(isa, x));
        let v83: f32 = (v81 + v82);
        self.out.put([id[0], 11_i64, 0_i64], v83);
        Ok(())
    }
}

