//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `control`, kernel-dsl/cpu/tests/kernels/mod.rs:278.
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
                    let program = ControlV0 {
                        x: self.x,
                        limit: self.limit,
                        out: &self.out,
                        dims,
                    };
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
///
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t2, t4, t12, t18, t19] = carve(scratch.f32.as_mut(), [64, 64, 64, 64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:283
        let mut v1: f32 = 0.0_f32;
        let x3 = isa.splat(1.0_f32);
        isa.store(x3, lanes_mut(t2, 0));
        let window6 = self.x.window([0_i64], [1, 8]);
        let row5 = window6.row(0);
        let x7 = isa.load(&row5.lanes(0));
        isa.store(x7, lanes_mut(t4, 0));
        let mut v8: i64 = 0_i64;
        for i9 in 0_i64..self.dims[0] {
            // kernel-dsl/cpu/tests/kernels/mod.rs:284
            let v10: f32 = self.x.get([i9]);
            // kernel-dsl/cpu/tests/kernels/mod.rs:285
            let v11: f32 = (v1 + v10);
            // kernel-dsl/cpu/tests/kernels/mod.rs:286
            let x13 = isa.load(lanes(t2, 0));
            let x14 = isa.splat(v10);
            let x15 = isa.add(x13, x14);
            isa.store(x15, lanes_mut(t12, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:289
            let v16: bool = (v11 < self.limit);
            let v17: i64;
            if v16 {
                // kernel-dsl/cpu/tests/kernels/mod.rs:290
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
            // kernel-dsl/cpu/tests/kernels/mod.rs:295
            for i29 in (0_i64..v17).step_by(2) {
                // kernel-dsl/cpu/tests/kernels/mod.rs:296
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:299
        let window36 = self.out.window_mut([0_i64, 0_i64], [1, 8]);
        let row37 = window36.row(0);
        let x38 = isa.load(lanes(t2, 0));
        row37.put_lanes(0, array(isa, x38));
        // kernel-dsl/cpu/tests/kernels/mod.rs:300
        let window39 = self.out.window_mut([1_i64, 0_i64], [1, 8]);
        let row40 = window39.row(0);
        let x41 = isa.load(lanes(t4, 0));
        row40.put_lanes(0, array(isa, x41));
        // kernel-dsl/cpu/tests/kernels/mod.rs:301
        self.out.put([2_i64, 0_i64], v1);
        // kernel-dsl/cpu/tests/kernels/mod.rs:302
        let v42: f32 = (v8 as f32);
        self.out.put([2_i64, 1_i64], v42);
        Ok(())
    }
}

