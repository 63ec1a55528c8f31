//! Micro-kernels against f64, and their bits against each other.

use super::*;
use crate::isa::{AnyIsa, Scalar, WithIsa};
use crate::packed::PackedWeights;
use crate::samples::*;
use std::ops::Range;
use tessera_tile_ir::format::Format;

/// One product of a packed weight.
struct Product<'a> {
    format: &'a Format,
    x: &'a [f32],
    m: usize,
    w: &'a PackedWeights,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl WithIsa for &Product<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> Vec<f32> {
        match self.format.name {
            "int4-g32" | "int4-g32-zp" | "int4-row" => self.int::<I, I4Codes, AsBf16>(isa),
            "nvfp4" => self.int::<I, E2m1Codes, AsE4m3>(isa),
            "mxfp4" => self.int::<I, E2m1Codes, AsUe8m0>(isa),
            "fp8-128x128" | "fp8-channel" => self.float::<I, AsE4m3, AsF32>(isa),
            "f16" => self.float::<I, AsF16, NoScale>(isa),
            "bf16" => self.float::<I, AsBf16, NoScale>(isa),
            _ => self.float::<I, AsF32, NoScale>(isa),
        }
    }
}

impl Product<'_> {
    fn group(&self) -> usize {
        self.format.scale_tile.map_or(self.w.cols(), |tile| tile.cols.min(self.w.cols()))
    }

    fn stride(&self) -> usize {
        self.rows.len().next_multiple_of(LANES)
    }

    /// Rows of ones, to see that products are added.
    fn acc(&self) -> Vec<f32> {
        vec![1.0; self.m * self.stride()]
    }

    #[inline(always)]
    fn int<I: Isa, T: IntCodes, S: Decode>(&self, isa: I) -> Vec<f32> {
        let (cols, group) = (self.w.cols(), self.group());
        let has_tiles = isa.tiles(1).is_some();
        let shape = A16Shape::new(cols, group).for_rows(self.m, has_tiles);
        let mut words = vec![0; self.m * shape.row_words()];
        for (x, words) in self.x.chunks(cols).zip(words.chunks_mut(shape.row_words())) {
            quantize_row(isa, x, shape, words);
        }
        let mut out = self.acc();
        let acc = &mut Acc { data: &mut out, stride: self.stride() };
        let slab = self.w.slab(self.rows.clone(), self.cols.clone());
        dot_scaled_int::<I, T, S>(isa, A16Rows { words: &words, shape }, &slab, acc);
        out
    }

    #[inline(always)]
    fn float<I: Isa, D: Decode, S: Decode>(&self, isa: I) -> Vec<f32> {
        let stride = self.w.cols();
        let x = Rows { data: &self.x[self.cols.start..], stride, rows: self.m };
        let mut out = self.acc();
        let acc = &mut Acc { data: &mut out, stride: self.stride() };
        let slab = self.w.slab(self.rows.clone(), self.cols.clone());
        dot_scaled_float::<I, D, S>(isa, x, &slab, acc);
        out
    }

    /// In f64, and the sum of magnitudes, which errors are judged by.
    fn exact(&self, m: usize, n: usize) -> (f64, f64) {
        let mut row = vec![0.0; self.w.cols()];
        let (row_idx, cols) = (self.rows.start + n, self.w.cols());
        let scalar = Scalar::detect().unwrap();
        self.w.decode_block(scalar, [row_idx..row_idx + 1, 0..cols], &mut row, cols);
        let x = &self.x[m * self.w.cols()..];
        let mut sums = (1.0, 1.0);
        for k in self.cols.clone() {
            let product = f64::from(x[k]) * f64::from(row[k]);
            sums = (sums.0 + product, sums.1 + product.abs());
        }
        sums
    }

    fn check(&self) {
        let scalar = AnyIsa::available()[0].run(self);
        let name = self.format.name;
        for m in 0..self.m {
            for n in 0..self.rows.len() {
                let (want, magnitude) = self.exact(m, n);
                let got = f64::from(scalar[m * self.stride() + n]);
                let error = (got - want).abs() / magnitude;
                assert!(error < 1e-4, "{name} at {m}, {n}: {got}, exact {want}");
            }
        }
        for isa in AnyIsa::available() {
            let got = isa.run(self);
            assert_eq!(bits(&got), bits(&scalar), "{name}, m = {}, {isa:?}", self.m);
        }
        let alone: Vec<f32> = self
            .x
            .chunks(self.w.cols())
            .flat_map(|x| {
                let rows = self.rows.clone();
                let one = Product { x, m: 1, rows, cols: self.cols.clone(), ..*self };
                AnyIsa::best().run(&one)
            })
            .collect();
        assert_eq!(bits(&alone), bits(&scalar), "{name}, m = {}, row by row", self.m);
    }
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn packed_products_of_every_format() {
    for format in FORMATS {
        for (n, cols) in [(16, 256), (40, 288), (80, 128), (33, 301), (7, 9), (16, 1)] {
            let Some(sample) = Sample::new(format, n, cols, 7) else { continue };
            let packed = sample.packed();
            for m in [0, 1, 2, 3, 5, 8, 9, 17, 35] {
                let x = Numbers::new(5).floats(m * cols);
                let rows = 0..n;
                Product { format, x: &x, m, w: &packed, rows, cols: 0..cols }.check();
            }
        }
    }
}

#[test]
fn parts_of_a_weight() {
    for format in FORMATS {
        let Some(sample) = Sample::new(format, 96, 512, 11) else { continue };
        let packed = sample.packed();
        let group = format.scale_tile.map_or(32, |tile| tile.cols);
        for cols in [0..512, 0..128, 128..512, 256..384] {
            if group > 512 && cols != (0..512) {
                continue;
            }
            let x = Numbers::new(5).floats(20 * 512);
            for m in [3, 20] {
                let x = &x[..m * 512];
                Product { format, x, m, w: &packed, rows: 32..80, cols: cols.clone() }.check();
            }
        }
    }
}

#[test]
fn rows_that_do_not_fit_the_nearest_cache() {
    for format in FORMATS {
        let Some(sample) = Sample::new(format, 32, 2432, 13) else { continue };
        let packed = sample.packed();
        let whole = format.scale_tile.is_some_and(|tile| tile.cols > 2432);
        let first = if whole { 0 } else { 128 };
        for m in [3, 8, 11] {
            let x = Numbers::new(6).floats(m * 2432);
            Product { format, x: &x, m, w: &packed, rows: 0..32, cols: first..2432 }.check();
        }
    }
}

/// A tile product in both of its layouts.
struct Tile<'a> {
    a: &'a [f32],
    b: &'a [f32],
    shape: [usize; 3],
    transposed: bool,
}

impl WithIsa for &Tile<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> Vec<f32> {
        let [m, n, k] = self.shape;
        let mut out = vec![0.5; m * n];
        let (row, col) = if self.transposed { (1, m) } else { (k, 1) };
        let a = Strided { data: self.a, row, col };
        let b = Rows { data: self.b, stride: n, rows: k };
        dot(isa, a, b, [m, n], &mut Acc { data: &mut out, stride: n });
        out
    }
}

#[test]
fn tile_products() {
    for m in [1, 2, 3, 8, 13] {
        for n in [1, 15, 16, 31, 32, 55, 80] {
            for k in [0, 1, 7, 64] {
                let (a, b) = (Numbers::new(1).floats(m * k), Numbers::new(2).floats(k * n));
                let turned: Vec<f32> = (0..m * k).map(|i| a[i % m * k + i / m]).collect();
                let tile = Tile { a: &a, b: &b, shape: [m, n, k], transposed: false };
                let scalar = AnyIsa::available()[0].run(&tile);
                for (i, got) in scalar.iter().enumerate() {
                    let exact: f64 = (0..k)
                        .map(|k_idx| {
                            let left = a[i / n * k + k_idx];
                            f64::from(left) * f64::from(b[k_idx * n + i % n])
                        })
                        .sum();
                    assert!((f64::from(*got) - exact - 0.5).abs() < 1e-5, "{m} {n} {k} at {i}");
                }
                let other = Tile { a: &turned, transposed: true, ..tile };
                for isa in AnyIsa::available() {
                    assert_eq!(bits(&isa.run(&tile)), bits(&scalar), "{isa:?}");
                    assert_eq!(bits(&isa.run(&other)), bits(&scalar), "{isa:?} transposed");
                }
            }
        }
    }
}

struct Quantize<'a>(&'a [f32], A16Shape);

impl WithIsa for &Quantize<'_> {
    type Output = Vec<i32>;

    #[inline(always)]
    fn call<I: Isa>(self, isa: I) -> Vec<i32> {
        let mut words = vec![0; self.1.row_words()];
        quantize_row(isa, self.0, self.1, &mut words);
        words
    }
}

#[test]
fn quantized_rows_hold_the_nearest_codes() {
    let mut awkward = Numbers::new(9).floats(300);
    awkward[7] = 1.0;
    awkward[40] = -1.0;
    awkward[64..96].fill(0.0);
    awkward[100] = f32::MIN_POSITIVE;
    for (cols, group) in [(300, 32), (300, 300), (256, 128), (9, 16), (1, 8), (64, 16)] {
        let (x, shape) = (&awkward[..cols], A16Shape::new(cols, group).for_rows(8, true));
        let words = AnyIsa::available()[0].run(&Quantize(x, shape));
        for isa in AnyIsa::available() {
            assert_eq!(isa.run(&Quantize(x, shape)), words, "{isa:?}");
        }
        let rows = A16Rows { words: &words, shape };
        let row = rows.row(&rows.row_shape(), 0);
        for (g, x) in x.chunks(group).enumerate() {
            let scale = x.iter().fold(0.0f32, |amax, x| amax.max(x.abs())) / A16_MAX;
            let mut sum = 0;
            for (i, x) in x.iter().enumerate() {
                let k = g * group + i;
                let byte = |word: i32| i32::from(word.to_le_bytes()[k % 4].cast_signed());
                let (block, word) = (row.blocks[k / 32], k % 32 / 4);
                let got = 256 * byte(block[word]) + byte(block[8 + word]);
                #[expect(clippy::cast_possible_truncation, reason = "a code")]
                let want = if scale > 0.0 { (x / scale).round_ties_even() as i32 } else { 0 };
                assert_eq!(got, want, "column {k}");
                if let Some(first) = rows.row_shape().tiles {
                    assert_eq!(for_tiles(&words[first..], k), want as f32, "column {k}");
                }
                sum += got;
            }
            assert_eq!(row.scales[g], scale.to_bits().cast_signed());
            assert_eq!(row.sums[g], sum);
        }
    }
}

/// The value of a column, put together from what tiles multiply.
fn for_tiles(words: &[i32], col: usize) -> f32 {
    let (block, col) = (&words[col / 32 * 32..][..32], col % 32);
    // Columns 1 and 2 of four change places.
    let place = col / 4 * 4 + [0, 2, 1, 3][col % 4];
    let plane = |plane: usize| {
        let bytes = block[plane * 16 + place / 2].to_le_bytes();
        let [low, high] = [bytes[place % 2 * 2], bytes[place % 2 * 2 + 1]];
        f32::from_bits(u32::from_le_bytes([0, 0, low, high]))
    };
    plane(0) + plane(1)
}

#[test]
fn what_is_not_finite_stays_visible() {
    let sample = Sample::new(INT4, 16, 64, 7).unwrap();
    let packed = sample.packed();
    for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let mut x = Numbers::new(5).floats(64);
        x[40] = bad;
        let rows = 0..16;
        let product = Product { format: INT4, x: &x, m: 1, w: &packed, rows, cols: 0..64 };
        for isa in AnyIsa::available() {
            assert!(isa.run(&product).iter().all(|y| y.is_nan()), "{bad} on {isa:?}");
        }
    }
}
