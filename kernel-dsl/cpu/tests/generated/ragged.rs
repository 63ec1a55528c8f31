//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `ragged`, kernel-dsl/cpu/tests/kernels/mod.rs:412.
pub struct Ragged<'a> {
    /// `In<f32, [M, N]>`.
    pub x: View<'a, f32, 2>,
    /// `In<i64, [S, 2]>`.
    pub bounds: View<'a, i64, 2>,
    /// `InOut<f32, [M, N]>`.
    pub changed: ViewMut<'a, f32, 2>,
    /// `Out<f32, [S, 4, 4]>`.
    pub product: ViewMut<'a, f32, 3>,
    /// `Out<f32, [M, 4]>`.
    pub gram: ViewMut<'a, f32, 2>,
    /// `Out<i64, [S]>`.
    pub last: ViewMut<'a, i64, 1>,
    /// `Out<f32, [M]>`.
    pub first: ViewMut<'a, f32, 1>,
}

impl Ragged<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 7] = [&self.x.dims(), &self.bounds.dims(), &self.changed.dims(), &self.product.dims(), &self.gram.dims(), &self.last.dims(), &self.first.dims()];
        let mut misfit = None;
        {
            match RAGGED_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = RaggedV0 {
                        x: self.x,
                        bounds: self.bounds,
                        changed: &self.changed,
                        product: &self.product,
                        gram: &self.gram,
                        last: &self.last,
                        first: &self.first,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("ragged"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("ragged", &[])))
    }
}

const RAGGED_V0: Signature = Signature {
    kernel: "ragged",
    dims: &["M", "N", "S"],
    views: &[
        ("x", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("bounds", &[Axis { dims: &[2], constant: 0 }, Axis { dims: &[], constant: 2 }]),
        ("changed", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[1], constant: 0 }]),
        ("product", &[Axis { dims: &[2], constant: 0 }, Axis { dims: &[], constant: 4 }, Axis { dims: &[], constant: 4 }]),
        ("gram", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[], constant: 4 }]),
        ("last", &[Axis { dims: &[2], constant: 0 }]),
        ("first", &[Axis { dims: &[0], constant: 0 }]),
    ],
};

/// `ragged`.
///
struct RaggedV0<'a> {
    x: View<'a, f32, 2>,
    bounds: View<'a, i64, 2>,
    changed: &'a ViewMut<'a, f32, 2>,
    product: &'a ViewMut<'a, f32, 3>,
    gram: &'a ViewMut<'a, f32, 2>,
    last: &'a ViewMut<'a, i64, 1>,
    first: &'a ViewMut<'a, f32, 1>,
    dims: [i64; 3],
}

impl RaggedV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        [self.dims[2], 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for RaggedV0<'_> {
    const KERNEL: &'static str = "ragged";
    const SIZES: Sizes = Sizes { f32: 1216, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t3, t6, t19, t23, t27, t33, t38] = carve(scratch.f32.as_mut(), [128, 128, 384, 192, 128, 128, 128]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:422
        let v1: i64 = self.bounds.get([id[0], 0_i64]);
        let v2: i64 = self.bounds.get([id[0], 1_i64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:425
        let x4 = isa.splat(0.0_f32);
        for r in 0..4 {
            isa.store(x4, lanes_mut(t3, r * 16));
        }
        for i5 in (v1..v2).step_by(4) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:427
            let window9 = self.x.until(v2).window([i5, 0_i64], [4, 21]);
            for r in 0..4 {
                let row8 = window9.row(r);
                let mut acc7 = isa.splat(f32::NEG_INFINITY);
                for c in (0..21).step_by(16) {
                    let x10 = isa.load(&row8.lanes(c));
                    let x11 = isa.select(first(isa, 21 - c), x10, isa.splat(f32::NEG_INFINITY));
                    acc7 = isa.max(acc7, x11);
                }
                t6[r * 16] = fold(isa, acc7, max);
            }
            let window12 = self.changed.until(v2).window_mut([i5, 0_i64], [4, 21]);
            let window15 = self.changed.until(v2).window([i5, 0_i64], [4, 21]);
            for r in 0..4 {
                let row13 = window12.row(r);
                let row14 = window15.row(r);
                let x17 = isa.splat(t6[r * 16]);
                for c in (0..21).step_by(16) {
                    let x16 = isa.load(&row14.lanes(c));
                    let x18 = isa.sub(x16, x17);
                    row13.put_lanes(c, array(isa, x18));
                }
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:428
            let window20 = self.x.until(v2).window([v1, 0_i64], [4, 21]);
            for r in 0..21 {
                let x21 = from_fn(isa, |l| window20.get(l, r));
                isa.store(x21, lanes_mut(t19, r * 16));
            }
            let slab22 = if let Some(slab) = self.x.until(v2).slab([i5, 0_i64], [4, 21]) {
                slab
            } else {
                let window25 = self.x.until(v2).window([i5, 0_i64], [4, 21]);
                for r in 0..4 {
                    let row24 = window25.row(r);
                    for c in (0..21).step_by(16) {
                        let x26 = isa.load(&row24.lanes(c));
                        isa.store(x26, lanes_mut(t23, r * 32 + c));
                    }
                }
                (&t23[..], 32)
            };
            let x28 = isa.splat(0.0_f32);
            for r in 0..4 {
                isa.store(x28, lanes_mut(t27, r * 16));
            }
            dot(
                isa,
                Strided { data: &slab22.0[..], row: slab22.1, col: 1 },
                Rows { data: &t19[..], stride: 16, rows: 21 },
                [4, 4],
                &mut Acc { data: t27, stride: 16 },
            );
            let window29 = self.gram.until(v2).window_mut([i5, 0_i64], [4, 4]);
            for r in 0..4 {
                let row30 = window29.row(r);
                let x31 = isa.load(lanes(t27, r * 16));
                row30.put_lanes(0, array(isa, x31));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:429
            let slab32 = if let Some(slab) = self.x.until(v2).slab([i5, 0_i64], [4, 4]) {
                slab
            } else {
                let window35 = self.x.until(v2).window([i5, 0_i64], [4, 4]);
                for r in 0..4 {
                    let row34 = window35.row(r);
                    let x36 = isa.load(&row34.lanes(0));
                    isa.store(x36, lanes_mut(t33, r * 16));
                }
                (&t33[..], 16)
            };
            let slab37 = if let Some(slab) = self.x.until(v2).slab([i5, 0_i64], [4, 4]) {
                slab
            } else {
                let window40 = self.x.until(v2).window([i5, 0_i64], [4, 4]);
                for r in 0..4 {
                    let row39 = window40.row(r);
                    let x41 = isa.load(&row39.lanes(0));
                    isa.store(x41, lanes_mut(t38, r * 16));
                }
                (&t38[..], 16)
            };
            dot(
                isa,
                Strided { data: &slab32.0[..], row: 1, col: slab32.1 },
                Rows { data: &slab37.0[..], stride: slab37.1, rows: 4 },
                [4, 4],
                &mut Acc { data: t3, stride: 16 },
            );
            // kernel-dsl/cpu/tests/kernels/mod.rs:431
            let v42: i64 = i5.wrapping_add(0_i64);
            let v43: i64 = i5.wrapping_add(0_i64);
            let window44 = self.changed.until(v2).window_mut([v42, 0_i64], [1, 21]);
            let row45 = window44.row(0);
            let window47 = self.changed.until(v2).window([v43, 0_i64], [1, 21]);
            let row46 = window47.row(0);
            let x49 = isa.splat(2.0_f32);
            for c in (0..21).step_by(16) {
                let x48 = isa.load(&row46.lanes(c));
                let x50 = isa.mul(x48, x49);
                row45.put_lanes(c, array(isa, x50));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:432
            let v51: i64 = i5.wrapping_add(0_i64);
            let v52: i64 = i5.wrapping_add(0_i64);
            let v53: f32 = self.x.until(v2).get([v52, 1_i64]);
            let v54: f32 = (v53 + 1.0_f32);
            self.first.until(v2).put([v51], v54);
            // kernel-dsl/cpu/tests/kernels/mod.rs:431
            let v55: i64 = i5.wrapping_add(3_i64);
            let v56: i64 = i5.wrapping_add(3_i64);
            let window57 = self.changed.until(v2).window_mut([v55, 0_i64], [1, 21]);
            let row58 = window57.row(0);
            let window60 = self.changed.until(v2).window([v56, 0_i64], [1, 21]);
            let row59 = window60.row(0);
            let x62 = isa.splat(2.0_f32);
            for c in (0..21).step_by(16) {
                let x61 = isa.load(&row59.lanes(c));
                let x63 = isa.mul(x61, x62);
                row58.put_lanes(c, array(isa, x63));
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:432
            let v64: i64 = i5.wrapping_add(3_i64);
            let v65: i64 = i5.wrapping_add(3_i64);
            let v66: f32 = self.x.until(v2).get([v65, 1_i64]);
            let v67: f32 = (v66 + 1.0_f32);
            self.first.until(v2).put([v64], v67);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:435
        let window68 = self.product.window_mut([id[0], 0_i64, 0_i64], [4, 4]);
        for r in 0..4 {
            let row69 = window68.row(r);
            let x70 = isa.load(lanes(t3, r * 16));
            row69.put_lanes(0, array(isa, x70));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:437
        let v71: i64 = self.dims[2].wrapping_add(9_i64);
        self.last.until(v71).put([id[0]], v2);
        // kernel-dsl/cpu/tests/kernels/mod.rs:438
        self.last.until((-1_i64)).put([id[0]], (-7_i64));
        Ok(())
    }
}

