//! See `tests/kernels`.
// Generated from tile IR by tessera-kernel-cpu; not for editing.

use tessera_lanes::exec::*;
use tessera_lanes::isa::Isa;
use tessera_lanes::math;
use tessera_lanes::micro::{A16Rows, Acc, Decode, IntCodes, NoScale, Rows, Strided};
use tessera_lanes::packed::PackedWeights;
use tessera_lanes::view::{View, ViewMut};

/// A launch of `bits`, kernel-dsl/cpu/tests/kernels/mod.rs:234.
pub struct Bits<'a> {
    /// `In<u32, [N]>`.
    pub a: View<'a, u32, 1>,
    /// `In<i32, [N]>`.
    pub b: View<'a, i32, 1>,
    /// `In<u64, [N]>`.
    pub c: View<'a, u64, 1>,
    /// `Out<u32, [N]>`.
    pub mixed: ViewMut<'a, u32, 1>,
    /// `Out<i32, [N]>`.
    pub signed: ViewMut<'a, i32, 1>,
    /// `Out<u64, [N]>`.
    pub wide: ViewMut<'a, u64, 1>,
    /// `Out<u64, [P]>`.
    pub digest: ViewMut<'a, u64, 1>,
    /// `InOut<u32, [1]>`.
    pub count: ViewMut<'a, u32, 1>,
}

impl Bits<'_> {
    /// Runs the first variant that is built for the formats of the arguments and whose
    /// extents they fit.
    ///
    /// # Errors
    /// [`LaunchError`]: no variant fits, or an assert of the kernel does not hold.
    pub fn launch(&self, cpu: &Cpu) -> Result<(), LaunchError> {
        let shapes: [&[usize]; 8] = [&self.a.dims(), &self.b.dims(), &self.c.dims(), &self.mixed.dims(), &self.signed.dims(), &self.wide.dims(), &self.digest.dims(), &self.count.dims()];
        let mut misfit = None;
        {
            match BITS_V0.solve(&shapes) {
                Ok(dims) => {
                    let program = BitsV0 {
                        a: self.a,
                        b: self.b,
                        c: self.c,
                        mixed: &self.mixed,
                        signed: &self.signed,
                        wide: &self.wide,
                        digest: &self.digest,
                        count: &self.count,
                        dims,
                    };
                    match program.fits() {
                        Ok(()) => return cpu.launch(program.grid(), &program),
                        Err(failed) => misfit = misfit.or(Some(failed.at_launch("bits"))),
                    }
                }
                Err(error) => misfit = misfit.or(Some(error)),
            }
        }
        Err(misfit.unwrap_or_else(|| no_variant("bits", &[])))
    }
}

const BITS_V0: Signature = Signature {
    kernel: "bits",
    dims: &["N", "P"],
    views: &[
        ("a", &[Axis { dims: &[0], constant: 0 }]),
        ("b", &[Axis { dims: &[0], constant: 0 }]),
        ("c", &[Axis { dims: &[0], constant: 0 }]),
        ("mixed", &[Axis { dims: &[0], constant: 0 }]),
        ("signed", &[Axis { dims: &[0], constant: 0 }]),
        ("wide", &[Axis { dims: &[0], constant: 0 }]),
        ("digest", &[Axis { dims: &[1], constant: 0 }]),
        ("count", &[Axis { dims: &[], constant: 1 }]),
    ],
};

/// `bits`.
///
struct BitsV0<'a> {
    a: View<'a, u32, 1>,
    b: View<'a, i32, 1>,
    c: View<'a, u64, 1>,
    mixed: &'a ViewMut<'a, u32, 1>,
    signed: &'a ViewMut<'a, i32, 1>,
    wide: &'a ViewMut<'a, u64, 1>,
    digest: &'a ViewMut<'a, u64, 1>,
    count: &'a ViewMut<'a, u32, 1>,
    dims: [i64; 2],
}

impl BitsV0<'_> {
    /// Programs along each axis.
    fn grid(&self) -> [i64; 3] {
        // kernel-dsl/cpu/tests/kernels/mod.rs:233
        let v1: i64 = self.dims[0].wrapping_add(20_i64);
        let v2: i64 = v1.wrapping_sub(1_i64);
        let v3: i64 = Int::div(v2, 20_i64);
        [v3, 1, 1]
    }

    /// Whether what the kernel asserts of its extents holds.
    fn fits(&self) -> Result<(), AssertFailed> {
        Ok(())
    }
}

impl Program for BitsV0<'_> {
    const KERNEL: &'static str = "bits";
    const SIZES: Sizes = Sizes { f32: 0, i32: 192, i64: 0, u64: 128, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        id: [i64; 3],
        scratch: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let [t5, t31, t61] = carve(scratch.i32.as_mut(), [64, 64, 64]);
        let [t53, t58] = carve(scratch.u64.as_mut(), [64, 64]);
        // kernel-dsl/cpu/tests/kernels/mod.rs:244
        let v4: i64 = id[0].wrapping_mul(20_i64);
        // kernel-dsl/cpu/tests/kernels/mod.rs:246
        let window7 = self.a.window([v4], [1, 20]);
        let row6 = window7.row(0);
        let x13 = isa.splat_i32((255_u32).cast_signed());
        for c in (0..20).step_by(16) {
            let x8 = isa.load_i32(&row6.lanes(c).map(u32::cast_signed));
            let x9 = isa.shr::<3>(x8);
            let x10 = isa.xor(x8, x9);
            let x11 = isa.shl::<5>(x8);
            let x12 = isa.add_i32(x10, x11);
            let x14 = isa.and(x8, x13);
            let x15 = isa.sub_i32(x12, x14);
            isa.store_i32(x15, lanes_mut(t5, c));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:248
        let window16 = self.mixed.window_mut([v4], [1, 20]);
        let row17 = window16.row(0);
        let window19 = self.a.window([v4], [1, 20]);
        let row18 = window19.row(0);
        let x23 = isa.splat_i32((3_u32).cast_signed());
        let x26 = isa.splat_i32((4000000000_u32).cast_signed());
        let x28 = isa.splat_i32((1_u32).cast_signed());
        for c in (0..20).step_by(16) {
            let x20 = isa.load_i32(&row18.lanes(c).map(u32::cast_signed));
            let x21 = isa.load_i32(lanes(t5, c));
            let x22 = isa.lt_i32(isa.xor(x20, isa.splat_i32(i32::MIN)), isa.xor(x21, isa.splat_i32(i32::MIN)));
            let x24 = zip_i32(isa, x20, x23, |a, b| Int::div(a.cast_unsigned(), b.cast_unsigned()).cast_signed());
            let x25 = zip_i32(isa, x21, x24, |a, b| a.cast_unsigned().max(b.cast_unsigned()).cast_signed());
            let x27 = zip_i32(isa, x25, x26, |a, b| a.cast_unsigned().min(b.cast_unsigned()).cast_signed());
            let x29 = isa.or(x20, x28);
            let x30 = isa.select_i32(x22, x27, x29);
            row17.put_lanes(c, array_i32(isa, x30).map(i32::cast_unsigned));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:249
        let window33 = self.b.window([v4], [1, 20]);
        let row32 = window33.row(0);
        let x35 = isa.splat_i32(7_i32);
        let x40 = isa.splat_i32(3_i32);
        for c in (0..20).step_by(16) {
            let x34 = isa.load_i32(&row32.lanes(c));
            let x36 = zip_i32(isa, x34, x35, |a, b| Int::div(a, b));
            let x37 = isa.sub_i32(isa.splat_i32(0), x34);
            let x38 = isa.max_i32(x36, x37);
            let x39 = isa.sra::<2>(x34);
            let x41 = isa.mul_i32(x39, x40);
            let x42 = isa.add_i32(x38, x41);
            isa.store_i32(x42, lanes_mut(t31, c));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:250
        let window43 = self.signed.window_mut([v4], [1, 20]);
        let row44 = window43.row(0);
        let window46 = self.b.window([v4], [1, 20]);
        let row45 = window46.row(0);
        let x50 = isa.splat_i32(63_i32);
        for c in (0..20).step_by(16) {
            let x47 = isa.load_i32(&row45.lanes(c));
            let x48 = isa.load_i32(lanes(t31, c));
            let x49 = isa.not_mask(isa.lt_i32(x48, x47));
            let x51 = isa.and(x47, x50);
            let x52 = isa.select_i32(x49, x48, x51);
            row44.put_lanes(c, array_i32(isa, x52));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:251
        let window54 = self.c.window([v4], [1, 20]);
        let window55 = self.a.window([v4], [1, 20]);
        for c in 0..20 {
            t53[c] = ((Int::shl(window54.get(0, c), 7_u64) ^ Int::shr(window54.get(0, c), 9_u64)) ^ (window55.get(0, c) as u64));
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:252
        let window56 = self.wide.window_mut([v4], [1, 20]);
        let row57 = window56.row(0);
        for c in 0..20 {
            row57.put(c, t53[c]);
        }
        // kernel-dsl/cpu/tests/kernels/mod.rs:253
        let mut acc59 = 0_u64;
        for c in 0..20 {
            acc59 = (acc59 ^ t53[c].wrapping_mul(3_u64));
        }
        t58[0] = acc59;
        let v60: u64 = t58[0];
        self.digest.put([id[0]], v60);
        // kernel-dsl/cpu/tests/kernels/mod.rs:255
        let window63 = self.a.window([v4], [1, 20]);
        let mut acc62 = 0_u32;
        for c in 0..20 {
            acc62 = acc62.wrapping_add((if ((window63.get(0, c) & 1_u32) == 1_u32) { 1_u32 } else { 0_u32 }));
        }
        t61[0] = (acc62).cast_signed();
        let v64: u32 = t61[0].cast_unsigned();
        {
            let new = v64;
            self.count.update([0_i64], |old| old.wrapping_add(new));
        }
        Ok(())
    }
}

