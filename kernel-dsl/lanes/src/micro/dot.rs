//! f32 tiles times f32 tiles.
#![expect(
    clippy::needless_range_loop,
    reason = "register blocks: one constant index walks several arrays, and unrolls"
)]

use super::{Acc, Place, Rows, Strided, block_rows};
use crate::isa::{Isa, LANES};

/// `acc[m][n] += sum over k of a[m][k] * b[k][n]`: one fused multiply-add a product, in the order
/// of `k`. `b` has a row for each `k`. Any `m`, `n` and `k`; whole vectors of `n` are fastest.
///
/// # Panics
/// If `a`, `b` or `acc` is smaller than `m`, `n` and the rows of `b` ask for.
pub fn dot<I: Isa>(isa: I, a: Strided<'_>, b: Rows<'_>, [m, n]: [usize; 2], acc: &mut Acc<'_>) {
    isa.run(
        #[inline(always)]
        || {
            if a.col == 1 {
                all(isa, a, b, [m, n], acc);
            } else {
                turned(isa, a, b, [m, n], acc);
            }
        },
    );
}

/// Rows and columns of the left side that are turned at a time.
const TURNED: [usize; 2] = [8, 256];

/// A left side whose rows are not contiguous: pieces of it are copied so that they are.
#[inline(always)]
fn turned<I: Isa>(isa: I, a: Strided<'_>, b: Rows<'_>, [m, n]: [usize; 2], acc: &mut Acc<'_>) {
    let mut piece = [0.0; TURNED[0] * TURNED[1]];
    for row in (0..m).step_by(TURNED[0]) {
        let rows = (m - row).min(TURNED[0]);
        for k in (0..b.rows).step_by(TURNED[1]) {
            let cols = (b.rows - k).min(TURNED[1]);
            for (i, piece) in piece.chunks_mut(TURNED[1]).take(rows).enumerate() {
                for (j, value) in piece.iter_mut().take(cols).enumerate() {
                    *value = a.data[(row + i) * a.row + (k + j) * a.col];
                }
            }
            let left = Strided { data: &piece, row: TURNED[1], col: 1 };
            let right = Rows { data: &b.data[k * b.stride..], rows: cols, ..b };
            let start = row * acc.stride;
            let acc = &mut Acc { data: &mut acc.data[start..], stride: acc.stride };
            all(isa, left, right, [rows, n], acc);
        }
    }
}

#[inline(always)]
fn all<I: Isa>(isa: I, a: Strided<'_>, b: Rows<'_>, [m, n]: [usize; 2], acc: &mut Acc<'_>) {
    let panels = n / LANES;
    let mut row = 0;
    while row < m {
        let place = Place { row, rows: m, panel: 0 };
        row += match block_rows::<I>(m - row) {
            8 => rows::<I, 8>(isa, a, b, place, panels, acc),
            4 => rows::<I, 4>(isa, a, b, place, panels, acc),
            _ => rows::<I, 1>(isa, a, b, place, panels, acc),
        };
    }
    if !n.is_multiple_of(LANES) {
        for row in 0..m {
            tail(isa, &a.data[row * a.row..][..b.rows], b, (row, panels * LANES..n), acc);
        }
    }
}

/// `MB` rows, all whole vectors of columns.
#[inline(always)]
#[expect(clippy::too_many_arguments, reason = "the operands of the product, and which part")]
fn rows<I: Isa, const MB: usize>(
    isa: I,
    a: Strided<'_>,
    b: Rows<'_>,
    mut place: Place,
    panels: usize,
    acc: &mut Acc<'_>,
) -> usize {
    while place.panel < panels {
        let block = place.blocks::<MB, 1>(panels);
        let mut left = [&a.data[block.rows[0] * a.row..][..b.rows]; MB];
        for m in 1..MB {
            left[m] = &a.data[block.rows[m] * a.row..][..b.rows];
        }
        let col = block.cols[0];
        if panels - place.panel >= 2 {
            let block = place.blocks::<MB, 2>(panels);
            let mut sums = acc.load::<I, MB, 2>(isa, &block);
            add_rows(isa, left, b, col, &mut sums);
            acc.store(isa, &block, &sums);
            place.panel += 2;
        } else {
            let mut sums = acc.load::<I, MB, 1>(isa, &block);
            add_rows(isa, left, b, col, &mut sums);
            acc.store(isa, &block, &sums);
            place.panel += 1;
        }
    }
    MB
}

/// Contiguous rows of as many elements as `b` has rows.
#[inline(always)]
pub(super) fn add_rows<I: Isa, const MB: usize, const NB: usize>(
    isa: I,
    left: [&[f32]; MB],
    b: Rows<'_>,
    col: usize,
    sums: &mut [[I::F32; NB]; MB],
) {
    let len = b.rows;
    let mut rows = [&left[0][..len]; MB];
    for m in 1..MB {
        rows[m] = &left[m][..len];
    }
    let mut out = *sums;
    for k in 0..len {
        let (vectors, _) = b.data[k * b.stride + col..][..NB * LANES].as_chunks::<LANES>();
        let mut right = [isa.splat(0.0); NB];
        for n in 0..NB {
            right[n] = isa.load(&vectors[n]);
        }
        for m in 0..MB {
            let left = isa.splat(rows[m][k]);
            for n in 0..NB {
                out[m][n] = isa.fma(left, right[n], out[m][n]);
            }
        }
    }
    *sums = out;
}

/// One row, and fewer columns than a vector has.
#[inline(always)]
fn tail<I: Isa>(
    isa: I,
    left: &[f32],
    b: Rows<'_>,
    (row, cols): (usize, std::ops::Range<usize>),
    acc: &mut Acc<'_>,
) {
    let at = row * acc.stride;
    let out = &mut acc.data[at + cols.start..at + cols.end];
    let mut sum = isa.load_first(out);
    for (k, left) in left.iter().enumerate() {
        let right = &b.data[k * b.stride..][cols.clone()];
        sum = isa.fma(isa.splat(*left), isa.load_first(right), sum);
    }
    isa.store_first(sum, out);
}
