//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `order`, kernel-dsl/cpu/tests/kernels/mod.rs:319.
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
        let shapes: [&[usize]; 8] = [&self.x.dims(), &self.prefix.dims(), &self.down.dims(), &self.best.dims(), &self.tallest.dims(), &self.joined.dims(), &self.flat.dims(), &self.flags.dims()];
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
///
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t1, t7, t27] = carve(scratch.f32.as_mut(), [192, 192, 192]);
        let [t13, t20] = carve(scratch.i64.as_mut(), [128, 64]);
        let [t39, t45, t49, t51] = carve(scratch.u8.as_mut(), [192, 64, 64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:330
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:331
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:332
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:333
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:334
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:335
        let window35 = self.flat.window_mut([0_i64, 0_i64], [6, 7]);
        let window37 = self.x.window([0_i64, 0_i64], [5, 21]);
        for r in 0..6 {
            let row36 = window35.row(r);
            let x38 = from_fn(isa, |l| window37.get(((r * 7 + l) % 3), ((r * 7 + l) / 3)));
            row36.put_lanes(0, array(isa, x38));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:336
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:338
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:339
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
            row55.put(c, (if ((t49[c] != 0) & (!(t51[c] != 0))) { 0_i64.wrapping_add(1_i64) } else { 0_i64 }));
        }
        Ok(())
    }
}

