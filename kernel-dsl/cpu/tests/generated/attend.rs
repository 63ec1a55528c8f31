//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `attend`, kernel-dsl/cpu/tests/kernels/mod.rs:206.
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
        let shapes: [&[usize]; 4] = [&self.q.dims(), &self.k.dims(), &self.out.dims(), &self.lse.dims()];
        let mut misfit = None;
        {
            match ATTEND_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = AttendV0 {
                        q: self.q,
                        k: self.k,
                        out: &self.out,
                        lse: &self.lse,
                        dims,
                    };
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
///
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:205
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t5, t8, t10, t12, t16, t20, t22, t27, t30, t34, t39, t44, t48, t66] = carve(scratch.f32.as_mut(), [448, 64, 128, 64, 384, 192, 192, 64, 64, 192, 64, 64, 384, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:212
        let v4: i64 = id[0].wrapping_mul(4_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:213
        let window6 = self.q.window([v4, 0_i64], [4, 24]);
        for r in 0..24 {
            let x7 = from_fn(isa, |l| (window6.get(l, r) * 0.25_f32));
            isa.store(x7, lanes_mut(t5, r * 16));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:217
        let x9 = isa.splat(0.0_f32);
        isa.store(x9, lanes_mut(t8, 0));
        let x11 = isa.splat(0.0_f32);
        for r in 0..4 {
            isa.store(x11, lanes_mut(t10, r * 16));
        }
        let x13 = isa.splat(f32::NEG_INFINITY);
        isa.store(x13, lanes_mut(t12, 0));
        for i14 in (0_i64..self.dims[1]).step_by(10) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:219
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
            dot(
                isa,
                Strided { data: &slab15.0[..], row: slab15.1, col: 1 },
                Rows { data: &t5[..], stride: 16, rows: 24 },
                [10, 4],
                &mut Acc { data: t20, stride: 16 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:220
            let x25 = isa.splat(f32::NEG_INFINITY);
            for r in 0..10 {
                let x23 = splat_mask(isa, ((r as i64).wrapping_add(i14) < self.dims[1]));
                let x24 = isa.load(lanes(t20, r * 16));
                let x26 = isa.select(x23, x24, x25);
                isa.store(x26, lanes_mut(t22, r * 16));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:221
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
            // kernel-dsl/cpu/tests/kernels/mod.rs:222
            let x36 = isa.load(lanes(t30, 0));
            for r in 0..10 {
                let x35 = isa.load(lanes(t22, r * 16));
                let x37 = isa.sub(x35, x36);
                let x38 = math::exp(isa, x37);
                isa.store(x38, lanes_mut(t34, r * 16));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:223
            let x40 = isa.load(lanes(t12, 0));
            let x41 = isa.load(lanes(t30, 0));
            let x42 = isa.sub(x40, x41);
            let x43 = math::exp(isa, x42);
            isa.store(x43, lanes_mut(t39, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:224
            let mut acc45 = isa.splat(0.0_f32);
            for r in 0..10 {
                let x46 = isa.load(lanes(t34, r * 16));
                acc45 = isa.add(acc45, x46);
            }
            isa.store(acc45, lanes_mut(t44, 0));
            // kernel-dsl/cpu/tests/kernels/mod.rs:225
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
            dot(
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:228
        let window61 = self.out.window_mut([v4, 0_i64], [4, 16]);
        for r in 0..4 {
            let row62 = window61.row(r);
            let x63 = isa.load(lanes(t10, r * 16));
            let x64 = isa.splat(t8[r]);
            let x65 = isa.div(x63, x64);
            row62.put_lanes(0, array(isa, x65));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:229
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

