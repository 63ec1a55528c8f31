//! Packed weights in a launch: which part of them a scaled dot reads, and the activations that
//! are quantized for it before.

use super::{AssertFailed, Cpu, Program, Scratch, Sizes, lock};
use crate::isa::Isa;
use crate::micro::{
    self, A16Rows, A16Shape, Acc, Decode, IntCodes, Rows, Strided, a16_words, dot_scaled_float,
    dot_scaled_int, quantize_row,
};
use crate::packed::{PackedWeights, Slab};
use crate::view::{View, ViewMut};
use std::ops::Range;
use std::sync::MutexGuard;

/// Weights: one matrix `[n, k]` (two axes), or one an expert (three).
#[derive(Debug, Clone, Copy)]
pub struct PackedView<'a, const R: usize> {
    weights: &'a [PackedWeights],
}

impl<'a> PackedView<'a, 2> {
    /// One matrix.
    pub fn new(weights: &'a PackedWeights) -> Self {
        Self { weights: std::slice::from_ref(weights) }
    }

    /// Extents.
    pub fn dims(&self) -> [usize; 2] {
        self.weights.first().map_or([0; 2], |w| [w.rows(), w.cols()])
    }

    /// The matrix.
    #[inline(always)]
    pub fn matrix(&self) -> Option<&'a PackedWeights> {
        self.weights.first()
    }
}

impl<'a> PackedView<'a, 3> {
    /// Matrices of one shape and format, one an expert.
    ///
    /// # Panics
    /// If they differ in shape or format.
    pub fn new(experts: &'a [PackedWeights]) -> Self {
        let same = |w: &[PackedWeights]| {
            (w[0].rows(), w[0].cols(), w[0].format().name)
                == (w[1].rows(), w[1].cols(), w[1].format().name)
        };
        assert!(experts.windows(2).all(same), "experts have one shape and format");
        Self { weights: experts }
    }

    /// Extents.
    pub fn dims(&self) -> [usize; 3] {
        self.weights.first().map_or([0; 3], |w| [self.weights.len(), w.rows(), w.cols()])
    }

    /// The matrix of an expert, if there is such an expert.
    #[inline(always)]
    pub fn expert(&self, expert: i64) -> Option<&'a PackedWeights> {
        self.weights.get(usize::try_from(expert).ok()?)
    }
}

impl<const R: usize> PackedView<'_, R> {
    /// Name of the format; empty where there are no weights.
    pub fn format(&self) -> &'static str {
        self.weights.first().map_or("", |w| w.format().name)
    }

    /// Columns of activations that share a scale where they are quantized to meet the weights.
    pub fn activation_group(&self) -> usize {
        let tile = self.weights.first().and_then(|w| w.format().activation().scale_tile);
        tile.map_or(usize::MAX, |tile| tile.cols)
    }
}

/// Which part of its operands a scaled dot multiplies.
#[derive(Debug, Clone, Copy)]
pub struct ScaledBlock {
    /// First row of the activations, and how many.
    pub rows: (i64, usize),
    /// First row of the weights, a multiple of 16, and how many.
    pub weights: (i64, usize),
    /// Columns from and to.
    pub cols: (i64, i64),
}

/// `start` plus whole steps, the first such that is not below `end`.
#[inline(always)]
pub fn whole_steps(start: i64, end: i64, step: i64) -> i64 {
    let steps = end.saturating_sub(start).max(0).saturating_add(step - 1) / step;
    start.saturating_add(steps.saturating_mul(step))
}

/// The indices of a window that are inside, from the first of them; and where that is in the window.
#[inline(always)]
fn inside(first: i64, count: usize, extent: usize) -> (Range<usize>, usize) {
    let end = first.saturating_add(i64::try_from(count).unwrap_or(i64::MAX));
    let clamp = |at: i64| usize::try_from(at).unwrap_or(0).min(extent);
    let skip = first.checked_neg().and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    (clamp(first)..clamp(end), skip.min(count))
}

impl ScaledBlock {
    /// Rows of the activations, where in the tile the first is, rows and columns of the weights.
    #[inline(always)]
    fn clip(
        &self,
        rows: usize,
        w: &PackedWeights,
    ) -> Option<(Range<usize>, usize, [Range<usize>; 2])> {
        let (m, skip) = inside(self.rows.0, self.rows.1, rows);
        let (n, n_skip) = inside(self.weights.0, self.weights.1, w.rows());
        let width = usize::try_from(self.cols.1.saturating_sub(self.cols.0)).unwrap_or(0);
        let (k, k_skip) = inside(self.cols.0, width, w.cols());
        assert!(n_skip == 0 && k_skip == 0, "weights are read from the first row and column on");
        (!m.is_empty() && !n.is_empty() && !k.is_empty()).then_some((m, skip, [n, k]))
    }
}

/// Quantized activations times weights of small integers; what is outside adds nothing.
#[inline(always)]
pub fn scaled_int<I: Isa, T: IntCodes, S: Decode>(
    isa: I,
    x: A16Rows<'_>,
    w: Option<&PackedWeights>,
    block: ScaledBlock,
    acc: &mut Acc<'_>,
) {
    let Some(w) = w else { return };
    let Some((m, skip, [n, k])) = block.clip(x.rows(), w) else { return };
    let mut acc = Acc { data: &mut acc.data[skip * acc.stride..], stride: acc.stride };
    int_block::<I, T, S>(isa, x.slice(m.start, m.len()), &w.slab(n, k), &mut acc);
}

/// A function of its own, so that the micro-kernel is compiled once for all kernels that call it.
#[inline(never)]
fn int_block<I: Isa, T: IntCodes, S: Decode>(
    isa: I,
    x: A16Rows<'_>,
    w: &Slab<'_>,
    acc: &mut Acc<'_>,
) {
    dot_scaled_int::<I, T, S>(isa, x, w, acc);
}

/// As `int_block`.
#[inline(never)]
fn float_block<I: Isa, D: Decode, S: Decode>(isa: I, x: Rows<'_>, w: &Slab<'_>, acc: &mut Acc<'_>) {
    dot_scaled_float::<I, D, S>(isa, x, w, acc);
}

/// `acc += a * b`, see [`micro::dot`].
///
/// # Panics
/// If `a`, `b` or `acc` is smaller than `m`, `n` and the rows of `b` ask for.
#[inline(never)]
pub fn dot<I: Isa>(isa: I, a: Strided<'_>, b: Rows<'_>, size: [usize; 2], acc: &mut Acc<'_>) {
    micro::dot(isa, a, b, size, acc);
}

/// f32 activations times weights of floats; what is outside adds nothing.
///
/// # Panics
/// If the activations are not as wide as the weights, which a launch checks.
#[inline(always)]
pub fn scaled_float<I: Isa, D: Decode, S: Decode>(
    isa: I,
    x: &View<'_, f32, 2>,
    w: Option<&PackedWeights>,
    block: ScaledBlock,
    acc: &mut Acc<'_>,
) {
    let Some(w) = w else { return };
    let Some((m, skip, [n, k])) = block.clip(x.dims()[0], w) else { return };
    let at = [m.start, k.start].map(|at| i64::try_from(at).unwrap_or(i64::MAX));
    let (data, stride) =
        x.slab(at, [m.len(), k.len()]).expect("activations are as wide as the weights");
    let mut acc = Acc { data: &mut acc.data[skip * acc.stride..], stride: acc.stride };
    let x = Rows { data, stride, rows: m.len() };
    float_block::<I, D, S>(isa, x, &w.slab(n, k), &mut acc);
}

/// Rows from a row and columns from a column of weights as f32, zeros outside.
///
/// # Panics
/// If `out` is too small.
#[inline(always)]
pub fn decode_block<I: Isa>(
    isa: I,
    w: Option<&PackedWeights>,
    [rows, cols]: [(i64, usize); 2],
    out: &mut [f32],
    stride: usize,
) {
    let width = cols.1;
    for r in 0..rows.1 {
        out[r * stride..][..width].fill(0.0);
    }
    let Some(w) = w else { return };
    let (n, n_skip) = inside(rows.0, rows.1, w.rows());
    let (k, k_skip) = inside(cols.0, width, w.cols());
    if !n.is_empty() && !k.is_empty() {
        w.decode_block(isa, [n, k], &mut out[n_skip * stride + k_skip..], stride);
    }
}

/// Quantized rows that live as long as a launch.
#[derive(Debug)]
pub struct Quantized<'a> {
    words: MutexGuard<'a, Vec<i32>>,
    /// Where in `words` the rows are.
    range: Range<usize>,
    shape: A16Shape,
}

impl Quantized<'_> {
    /// The rows.
    pub fn rows(&self) -> A16Rows<'_> {
        A16Rows { words: &self.words[self.range.clone()], shape: self.shape }
    }
}

struct Quantize<'a> {
    x: View<'a, f32, 2>,
    out: ViewMut<'a, i32, 2>,
    shape: A16Shape,
}

impl Program for Quantize<'_> {
    const KERNEL: &'static str = "quantize";
    const SIZES: Sizes = Sizes { f32: 0, i32: 0, i64: 0, u64: 0, u8: 0 };

    #[inline(always)]
    fn run<I: Isa>(
        &self,
        isa: I,
        [row, ..]: [i64; 3],
        _: &mut Scratch,
    ) -> Result<(), AssertFailed> {
        let cols = self.shape.cols;
        if let Some((x, _)) = self.x.slab([row, 0], [1, cols]) {
            self.out.with_row(
                row,
                #[inline(always)]
                |out| quantize_row(isa, &x[..cols], self.shape, out),
            );
        }
        Ok(())
    }
}

impl Cpu {
    /// Quantizes every row of `x` in groups of `group` columns, into memory that the device keeps;
    /// parameters of one launch have a slot each.
    ///
    /// # Panics
    /// If there are more slots than the device has, or the groups are not whole steps of 8 columns.
    pub fn quantize(&self, slot: usize, x: &View<'_, f32, 2>, group: usize) -> Quantized<'_> {
        let [rows, cols] = x.dims();
        let shape = A16Shape::new(cols, group.min(cols.max(1).next_multiple_of(8)));
        let shape = shape.for_rows(rows, self.isa.has_tiles());
        let width = shape.row_words();
        let len = rows * width;
        let mut words = lock(&self.activations[slot]);
        let range = a16_words(&mut words, len);
        if len > 0 {
            let out = ViewMut::new(&mut words[range.clone()], [rows, width]);
            let grid = [i64::try_from(rows).unwrap_or(0), 1, 1];
            let quantized = self.launch(grid, &Quantize { x: *x, out, shape });
            quantized.expect("the program asserts nothing");
        }
        Quantized { words, range, shape }
    }
}
