//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `softmax`, kernel-dsl/cpu/tests/kernels/mod.rs:192.
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
                    let program = SoftmaxV0 {
                        x: &self.x,
                        largest: &self.largest,
                        dims,
                    };
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
///
struct SoftmaxV0<'a> {
    x: &'a ViewMut<'a, f32, 2>,
    largest: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 2],
}

impl SoftmaxV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:191
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t5, t12, t16, t21, t25, t33] = carve(scratch.f32.as_mut(), [448, 192, 448, 192, 448, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:193
        let v4: i64 = id[0].wrapping_mul(8_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:194
        let window8 = self.x.window([v4, 0_i64], [8, 40]);
        let x10 = isa.splat(f32::NEG_INFINITY);
        for r in 0..8 {
            let row7 = window8.row(r);
            for c in (0..40).step_by(16) {
                let x6 = from_fn_mask(isa, |l| if (c + l) < 40 { (((c + l) as i64) < self.dims[1]) } else { false });
                let x9 = isa.load(&row7.lanes(c));
                let x11 = isa.select(x6, x9, x10);
                isa.store(x11, lanes_mut(t5, r * 48 + c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:195
        for r in 0..8 {
            let mut acc13 = isa.splat(f32::NEG_INFINITY);
            for c in (0..40).step_by(16) {
                let x14 = isa.load(lanes(t5, r * 48 + c));
                let x15 = isa.select(first(isa, 40 - c), x14, isa.splat(f32::NEG_INFINITY));
                acc13 = isa.max(acc13, x15);
            }
            t12[r * 16] = fold(isa, acc13, max);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:196
        for r in 0..8 {
            let x18 = isa.splat(t12[r * 16]);
            for c in (0..40).step_by(16) {
                let x17 = isa.load(lanes(t5, r * 48 + c));
                let x19 = isa.sub(x17, x18);
                let x20 = math::exp(isa, x19);
                isa.store(x20, lanes_mut(t16, r * 48 + c));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:197
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:198
        let window29 = self.x.window_mut([v4, 0_i64], [8, 40]);
        for r in 0..8 {
            let row30 = window29.row(r);
            for c in (0..40).step_by(16) {
                let x31 = isa.load(lanes(t25, r * 48 + c));
                row30.put_lanes(c, array(isa, x31));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:199
        let v32: bool = (v4 == 0_i64);
        if v32 {
            // kernel-dsl/cpu/tests/kernels/mod.rs:200
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

