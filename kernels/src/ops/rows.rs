//! Rows of f32 in host memory: what a [`RowView`] stands for on the CPU.

use crate::launch::RowView;
use rayon::prelude::*;

/// `rows` rows of `cols` elements, `stride` elements apart.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

/// [`Rows`] that can be written.
#[derive(Debug)]
pub struct RowsMut<'a> {
    data: &'a mut [f32],
    rows: usize,
    cols: usize,
    stride: usize,
}

impl<'a> Rows<'a> {
    /// The rows of `view` in its buffer.
    ///
    /// # Panics
    /// If the view reaches past the buffer: a checked launch does not.
    pub fn new(buffer: &'a [f32], view: &RowView) -> Self {
        let (rows, cols, stride) = (view.rows, view.cols, view.stride);
        Self { data: &buffer[view.offset..][..extent(rows, cols, stride)], rows, cols, stride }
    }

    /// Contiguous rows of `cols` elements.
    pub fn contiguous(data: &'a [f32], cols: usize) -> Self {
        Self { data, rows: data.len() / cols.max(1), cols, stride: cols }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Elements per row.
    pub fn num_cols(&self) -> usize {
        self.cols
    }

    /// Row `index`.
    pub fn row(&self, index: usize) -> &'a [f32] {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        &self.data[index * self.stride..][..self.cols]
    }
}

impl<'a> RowsMut<'a> {
    /// The rows of `view` in its buffer.
    ///
    /// # Panics
    /// As [`Rows::new`].
    pub fn new(buffer: &'a mut [f32], view: &RowView) -> Self {
        let (rows, cols, stride) = (view.rows, view.cols, view.stride);
        let data = &mut buffer[view.offset..][..extent(rows, cols, stride)];
        Self { data, rows, cols, stride }
    }

    /// Contiguous rows of `cols` elements.
    pub fn contiguous(data: &'a mut [f32], cols: usize) -> Self {
        Self { rows: data.len() / cols.max(1), data, cols, stride: cols }
    }

    /// Number of rows.
    pub fn num_rows(&self) -> usize {
        self.rows
    }

    /// Elements per row.
    pub fn num_cols(&self) -> usize {
        self.cols
    }

    /// Row `index`.
    pub fn row_mut(&mut self, index: usize) -> &mut [f32] {
        assert!(index < self.rows, "row {index} of {}", self.rows);
        &mut self.data[index * self.stride..][..self.cols]
    }

    /// Calls `f` with the index and contents of each row, on many threads if the `work` of one row
    /// (in multiply-adds or the like) makes it worthwhile.
    pub fn for_each(self, work: usize, f: impl Fn(usize, &mut [f32]) + Sync) {
        let (rows, cols) = (self.rows, self.cols);
        if rows == 0 || cols == 0 {
            return;
        }
        if rows.saturating_mul(work) < super::dot::PARALLEL_MACS {
            let rows = self.data.chunks_mut(self.stride).enumerate();
            rows.for_each(|(i, row)| f(i, &mut row[..cols]));
        } else {
            let rows = self.data.par_chunks_mut(self.stride).enumerate();
            rows.for_each(|(i, row)| f(i, &mut row[..cols]));
        }
    }

    /// All rows, one mutable slice each.
    pub(super) fn into_rows(self) -> Vec<&'a mut [f32]> {
        let cols = self.cols;
        if self.rows == 0 || cols == 0 {
            return (0..self.rows).map(|_| Default::default()).collect();
        }
        self.data.chunks_mut(self.stride).map(|row| &mut row[..cols]).collect()
    }
}

/// Elements from the first of the first row to the last of the last.
fn extent(rows: usize, cols: usize, stride: usize) -> usize {
    match rows {
        0 => 0,
        rows => (rows - 1) * stride + cols,
    }
}
