//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `lookup`, kernel-dsl/cpu/tests/kernels/mod.rs:393.
pub struct Lookup<'a> {
    /// `In<i32, [T]>`.
    pub ids: View<'a, i32, 1>,
    /// `In<packed, [V, N]>`.
    pub w: PackedView<'a, 2>,
    /// `Out<f32, [T, N]>`.
    pub out: ViewMut<'a, f32, 2>,
    /// `Out<f32, [4, N]>`.
    pub first: ViewMut<'a, f32, 2>,
}

impl Lookup<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 4] = [&self.ids.dims(), &self.w.dims(), &self.out.dims(), &self.first.dims()];
        let mut misfit = None;
        if self.w.format() == "f32" || self.w.format() == "fp8-128x128" || self.w.format() == "int4-g32-zp" || self.w.format() == "mxfp4" {
            match LOOKUP_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = LookupV0 {
                        ids: self.ids,
                        w: self.w,
                        out: &self.out,
                        first: &self.first,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("lookup"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("lookup", &[self.w.format()])))
    }
}

const LOOKUP_V0: Signature = Signature {
    kernel: "lookup",
    dims: &["T", "V", "N"],
    views: &[
        ("ids", &[Axis { dims: &[0], constant: 0 }]),
        ("w", &[Axis { dims: &[1], constant: 0 }, Axis { dims: &[2], constant: 0 }]),
        ("out", &[Axis { dims: &[0], constant: 0 }, Axis { dims: &[2], constant: 0 }]),
        ("first", &[Axis { dims: &[], constant: 4 }, Axis { dims: &[2], constant: 0 }]),
    ],
};

/// `lookup<f32>`.
///
/// `lookup<fp8-128x128>`.
///
/// `lookup<int4-g32-zp>`.
///
/// `lookup<mxfp4>`.
///
struct LookupV0<'a> {
    ids: View<'a, i32, 1>,
    w: PackedView<'a, 2>,
    out: &'a ViewMut<'a, f32, 2>,
    first: &'a ViewMut<'a, f32, 2>,
    dims: [i64; 3],
}

impl LookupV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:392
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

impl Program for LookupV0<'_> {
    const KERNEL: &'static str = "lookup";
    const SIZES: Sizes = Sizes { f32: 512, i32: 0, i64: 64, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t8, t13] = carve(scratch.f32.as_mut(), [256, 256]);
        let [t5] = carve(scratch.i64.as_mut(), [64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:399
        let v4: i64 = id[0].wrapping_mul(4_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:400
        let window6 = self.ids.window([v4], [1, 4]);
        for c in 0..4 {
            t5[c] = (window6.get(0, c) as i64);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:401
        for i7 in (0_i64..self.dims[2]).step_by(40) {
            // kernel-dsl/cpu/tests/kernels/mod.rs:402
            for r in 0..4 {
                decode_block(isa, self.w.matrix(), [(t5[r], 1), (i7, 40)], &mut t8[r * 48..], 48);
            }
            let window9 = self.out.window_mut([v4, i7], [4, 40]);
            for r in 0..4 {
                let row10 = window9.row(r);
                for c in (0..40).step_by(16) {
                    let x11 = isa.load(lanes(t8, r * 48 + c));
                    row10.put_lanes(c, array(isa, x11));
                }
            }
            // kernel-dsl/cpu/tests/kernels/mod.rs:403
            let v12: bool = (v4 == 0_i64);
            if v12 {
                // kernel-dsl/cpu/tests/kernels/mod.rs:404
                decode_block(isa, self.w.matrix(), [(0_i64, 4), (i7, 40)], t13, 48);
                let window14 = self.first.window_mut([0_i64, i7], [4, 40]);
                for r in 0..4 {
                    let row15 = window14.row(r);
                    for c in (0..40).step_by(16) {
                        let x16 = isa.load(lanes(t13, r * 48 + c));
                        row15.put_lanes(c, array(isa, x16));
                    }
                }
            } else {
            }
        }
        Ok(())
    }
}

