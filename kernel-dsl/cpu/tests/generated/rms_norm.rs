//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `rms_norm`, kernel-dsl/cpu/tests/kernels/mod.rs:172.
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
///
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t1, t9, t13] = carve(scratch.f32.as_mut(), [64, 64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:180
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:184
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:185
        for i20 in (0_i64..self.dims[1]).step_by(48) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:186
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

