//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `checked`, kernel-dsl/cpu/tests/kernels/mod.rs:365.
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
                    let program = CheckedV0 {
                        x: self.x,
                        out: &self.out,
                        dims,
                    };
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
                    let program = CheckedV1 {
                        x: self.x,
                        out: &self.out,
                        dims,
                    };
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
///
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:366
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:366
        let v1: bool = (self.dims[1] <= 8_i64);
        if !v1 {
            return Err(AssertFailed { message: "rows are as wide as a variant" });
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:369
        let window3 = self.x.window([id[0], 0_i64], [1, 8]);
        let row2 = window3.row(0);
        let x4 = isa.load_i32(&row2.lanes(0));
        let x5 = isa.splat_i32(0_i32);
        let x6 = isa.not_mask(isa.lt_i32(x4, x5));
        if !isa.mask_bits(x6) & first_bits(8 - 0) != 0 {
            return Err(AssertFailed { message: "`x` counts" });
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:370
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
///
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:366
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
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        // kernel-dsl/cpu/tests/kernels/mod.rs:366
        let v1: bool = (self.dims[1] <= 24_i64);
        if !v1 {
            return Err(AssertFailed { message: "rows are as wide as a variant" });
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:369
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
        // kernel-dsl/cpu/tests/kernels/mod.rs:370
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

