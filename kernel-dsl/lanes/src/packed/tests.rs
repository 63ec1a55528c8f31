//! Packed weights decode to what the stored ones stand for.

use super::*;
use crate::isa::{AnyIsa, WithIsa};
use crate::samples::{FORMATS, Sample};

/// The value of an element by the definition of the stored layout.
fn stored(sample: &Sample, row: usize, col: usize) -> f32 {
    let parts = sample.parts();
    let format = parts.format;
    let bits = format.element.bits();
    let row_bytes = format.row_bytes(parts.cols);
    let mut code = 0;
    for bit in 0..bits {
        let at = col * bits + bit;
        let byte = parts.codes[row * row_bytes + at / 8];
        code |= u32::from(byte >> (at % 8) & 1) << bit;
    }
    let Some(tile) = format.scale_tile else {
        return format.element.decode(code);
    };
    let at = row / tile.rows * parts.cols.div_ceil(tile.cols) + col / tile.cols;
    let scale = tile.scale.read(parts.scales, at) * parts.tensor_scale;
    match parts.zero_points.get(at) {
        Some(zero) => (f32::from(u8::try_from(code).unwrap()) - f32::from(*zero)) * scale,
        None => format.element.decode(code) * scale,
    }
}

struct DecodeBlock<'a> {
    packed: &'a PackedWeights,
    rows: usize,
    cols: Range<usize>,
}

impl WithIsa for &DecodeBlock<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> Vec<f32> {
        let width = self.cols.len();
        let mut out = vec![f32::NAN; self.rows * width];
        self.packed.decode_block(isa, [0..self.rows, self.cols.clone()], &mut out, width);
        out
    }
}

#[test]
fn packing_keeps_every_value() {
    for format in FORMATS {
        for (rows, cols) in [(1, 1), (16, 128), (17, 136), (40, 300), (130, 260)] {
            let Some(sample) = Sample::new(format, rows, cols, 3) else { continue };
            let packed = sample.packed();
            for (isa, first) in AnyIsa::available().into_iter().flat_map(|isa| [(isa, 0), (isa, 3)])
            {
                let width = (cols + 2).saturating_sub(first);
                let got = isa.run(&DecodeBlock {
                    packed: &packed,
                    rows: rows + 1,
                    cols: first..first + width,
                });
                for (i, got) in got.into_iter().enumerate() {
                    let (row, col) = (i / width, first + i % width);
                    let inside = row < rows && col < cols;
                    let want = if inside { stored(&sample, row, col) } else { 0.0 };
                    let same = got.to_bits() == want.to_bits() || got == 0.0 && want == 0.0;
                    let name = format.name;
                    assert!(
                        same,
                        "{name} [{rows}, {cols}] at {row}, {col}: {got}, {want}, {isa:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn parts_of_a_wrong_size_are_refused() {
    let sample = Sample::new(FORMATS[0], 16, 64, 1).unwrap();
    let arena = Arena::new();
    let mut parts = sample.parts();
    parts.scales = &parts.scales[1..];
    let error = PackedWeights::pack(&parts, &arena).unwrap_err().to_string();
    assert_eq!(error, "int4-g32 [16, 64]: scales has 63 bytes, needs 64");
}

#[test]
fn a_slab_leaves_out_what_is_not_there() {
    let sample = Sample::new(FORMATS[0], 40, 64, 1).unwrap();
    let packed = sample.packed();
    assert_eq!(packed.slab(0..16, 0..64).num_panels(), 1);
    assert_eq!(packed.slab(32..64, 0..64).num_panels(), 1);
    assert_eq!(packed.slab(64..80, 0..64).num_panels(), 0);
    assert_eq!(packed.slab(16..64, 32..96).cols, 32..64);
}
