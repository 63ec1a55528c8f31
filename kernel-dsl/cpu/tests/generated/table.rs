//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `table`, kernel-dsl/cpu/tests/kernels/mod.rs:260.
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
        let shapes: [&[usize]; 5] = [&self.from.dims(), &self.ids.dims(), &self.rows.dims(), &self.spots.dims(), &self.inverse.dims()];
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
///
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:259
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t5, t7] = carve(scratch.i64.as_mut(), [64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:267
        let v4: i64 = id[0].wrapping_mul(6_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:268
        let window6 = self.ids.window([v4], [1, 6]);
        for c in 0..6 {
            t5[c] = (window6.get(0, c) as i64);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:269
        for c in 0..6 {
            t7[c] = (c as i64).wrapping_add(v4);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:271
        for r in 0..6 {
            let row8 = self.rows.window_mut([t7[r], 0_i64], [1, 20]).row(0);
            let row9 = self.from.window([t5[r], 0_i64], [1, 20]).row(0);
            for c in (0..20).step_by(16) {
                let x10 = isa.load(&row9.lanes(c));
                row8.put_lanes(c, array(isa, x10));
            }
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:272
        for c in 0..6 {
            self.spots.put([t7[c]], self.from.get([t5[c], Int::rem(t7[c], 3_i64)]));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:273
        for c in 0..6 {
            self.inverse.put([(if ((t5[c] < 0_i64) | (t7[c] >= self.dims[2])) { (-1_i64) } else { t5[c] })], t7[c]);
        }
        Ok(())
    }
}

