//! Bounded strided views of arrays, as generated kernels read and write them.
//!
//! Reads outside a view give zero, writes outside are dropped; the last axis is contiguous. A
//! [`ViewMut`] is shared by all programs of a launch, which write disjoint elements: that is a rule
//! of the kernel language, checked by the f64 evaluator on every case of every kernel.

use std::marker::PhantomData;

use crate::isa::LANES;

/// An array that is read.
#[derive(Debug, Clone, Copy)]
pub struct View<'a, T, const R: usize> {
    raw: Raw<T, R>,
    data: &'a [T],
}

/// An array that the programs of a launch write.
#[derive(Debug)]
pub struct ViewMut<'a, T, const R: usize> {
    raw: Raw<T, R>,
    data: PhantomData<&'a mut [T]>,
}

/// Memory, extents and strides. Every index inside `dims` is inside the memory (`checked`).
#[derive(Debug, Clone, Copy)]
struct Raw<T, const R: usize> {
    ptr: *mut T,
    dims: [usize; R],
    strides: [usize; R],
}

// SAFETY: a `Raw` is only reachable through a `View`, whose elements nobody writes, or through a
// `ViewMut`, whose elements only one program accesses while a launch runs.
#[expect(unsafe_code, reason = "views are shared by the threads of a launch")]
unsafe impl<T: Send + Sync, const R: usize> Send for Raw<T, R> {}
// SAFETY: as above.
#[expect(unsafe_code, reason = "views are shared by the threads of a launch")]
unsafe impl<T: Send + Sync, const R: usize> Sync for Raw<T, R> {}

/// Strides of an array without gaps.
pub fn contiguous<const R: usize>(dims: [usize; R]) -> [usize; R] {
    let mut strides = [1; R];
    for axis in (1..R).rev() {
        strides[axis - 1] = strides[axis] * dims[axis];
    }
    strides
}

impl<T, const R: usize> Raw<T, R> {
    /// # Panics
    /// If an index inside `dims` is outside `len` elements, or the last axis is not contiguous.
    fn checked(ptr: *mut T, len: usize, dims: [usize; R], strides: [usize; R]) -> Self {
        assert!(R == 0 || strides[R - 1] == 1 || dims[R - 1] < 2, "the last axis is contiguous");
        if !dims.contains(&0) {
            let last = dims.iter().zip(strides).try_fold(0usize, |at, (&extent, stride)| {
                at.checked_add((extent - 1).checked_mul(stride)?)
            });
            assert!(
                last.is_some_and(|last| last < len),
                "a view of {dims:?} with strides {strides:?} into {len} elements"
            );
        }
        Self { ptr, dims, strides }
    }

    /// The same memory, with a first extent of at most `end`.
    #[inline(always)]
    fn until(&self, end: i64) -> Self {
        let mut dims = self.dims;
        if let Some(extent) = dims.first_mut() {
            *extent = (*extent).min(first_inside(end));
        }
        Self { ptr: self.ptr, dims, strides: self.strides }
    }

    /// Offset of an index, if it is inside.
    #[inline(always)]
    fn offset(&self, at: [i64; R]) -> Option<usize> {
        let mut offset = 0;
        for ((at, extent), stride) in at.into_iter().zip(self.dims).zip(self.strides) {
            offset += inside(at, extent)? * stride;
        }
        Some(offset)
    }

    /// The window of `rows` by `cols` elements that starts at `at`, along the last two axes.
    #[inline(always)]
    fn window(&self, at: [i64; R], [rows, cols]: [usize; 2]) -> Span<T> {
        let mut span = Span { ptr: self.ptr, stride: 0, rows: Range::EMPTY, cols: Range::EMPTY };
        let mut offset = 0;
        let lead = at.iter().zip(self.dims).zip(self.strides).take(R.saturating_sub(2));
        for ((&at, extent), stride) in lead {
            let Some(index) = inside(at, extent) else { return span };
            offset += index * stride;
        }
        span.cols = Range::clip(at[R - 1], cols, self.dims[R - 1]);
        span.rows = Range { skip: 0, end: 1 };
        if R >= 2 {
            span.rows = Range::clip(at[R - 2], rows, self.dims[R - 2]);
            span.stride = self.strides[R - 2];
        }
        if span.rows.is_empty() || span.cols.is_empty() {
            span.rows = Range::EMPTY;
            return span;
        }
        offset += first_inside(at[R - 1]);
        if R >= 2 {
            offset += first_inside(at[R - 2]) * span.stride;
        }
        span.ptr = span.ptr.wrapping_add(offset);
        span
    }
}

#[inline(always)]
fn inside(at: i64, extent: usize) -> Option<usize> {
    usize::try_from(at).ok().filter(|&at| at < extent)
}

/// First index of a window that is not before the array.
#[inline(always)]
fn first_inside(at: i64) -> usize {
    usize::try_from(at).unwrap_or(0)
}

/// Indices of a window that are inside the array: `skip..end`.
#[derive(Debug, Clone, Copy)]
struct Range {
    skip: usize,
    end: usize,
}

impl Range {
    const EMPTY: Self = Self { skip: 0, end: 0 };

    #[inline(always)]
    fn clip(at: i64, window: usize, extent: usize) -> Self {
        let left = at.checked_neg().map_or(usize::MAX, first_inside);
        if at < 0 {
            let end = window.min(left.saturating_add(extent));
            return Self { skip: left, end };
        }
        Self { skip: 0, end: window.min(extent.saturating_sub(first_inside(at))) }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.skip >= self.end
    }

    #[inline(always)]
    fn contains(&self, index: usize) -> bool {
        self.skip <= index && index < self.end
    }
}

/// A window: `ptr` is its first element inside the array.
#[derive(Debug, Clone, Copy)]
struct Span<T> {
    ptr: *mut T,
    stride: usize,
    rows: Range,
    cols: Range,
}

impl<T> Span<T> {
    #[inline(always)]
    fn row(&self, row: usize) -> Line<T> {
        if !self.rows.contains(row) {
            return Line { ptr: self.ptr, cols: Range::EMPTY };
        }
        let ptr = self.ptr.wrapping_add((row - self.rows.skip) * self.stride);
        Line { ptr, cols: self.cols }
    }
}

/// A row of a window: `ptr` is its first element inside the array, column `cols.skip`.
#[derive(Debug, Clone, Copy)]
struct Line<T> {
    ptr: *mut T,
    cols: Range,
}

/// A window of an array that is read.
#[derive(Debug, Clone, Copy)]
pub struct Window<'a, T> {
    span: Span<T>,
    array: PhantomData<&'a [T]>,
}

/// A row of a [`Window`].
#[derive(Debug, Clone, Copy)]
pub struct Row<'a, T> {
    line: Line<T>,
    array: PhantomData<&'a [T]>,
}

/// A window of an array that is written.
#[derive(Debug)]
pub struct WindowMut<'a, T> {
    span: Span<T>,
    array: PhantomData<&'a mut [T]>,
}

/// A row of a [`WindowMut`].
#[derive(Debug)]
pub struct RowMut<'a, T> {
    line: Line<T>,
    array: PhantomData<&'a mut [T]>,
}

impl<'a, T: Copy + Default> Window<'a, T> {
    /// A row of the window; outside the array all of it is zero.
    #[inline(always)]
    pub fn row(&self, row: usize) -> Row<'a, T> {
        Row { line: self.span.row(row), array: PhantomData }
    }

    /// One element.
    #[inline(always)]
    pub fn get(&self, row: usize, col: usize) -> T {
        self.row(row).get(col)
    }

    /// Whether no element of a `rows` by `cols` window is outside the array.
    #[inline(always)]
    pub fn is_whole(&self, rows: usize, cols: usize) -> bool {
        let whole = |range: Range, extent| range.skip == 0 && range.end == extent;
        whole(self.span.rows, rows) && whole(self.span.cols, cols)
    }
}

impl<T: Copy + Default> Row<'_, T> {
    /// One element.
    #[inline(always)]
    #[expect(unsafe_code, reason = "reads memory that other programs may not write")]
    pub fn get(&self, col: usize) -> T {
        if !self.line.cols.contains(col) {
            return T::default();
        }
        // SAFETY: the column is inside the array (`Raw::checked`), and no program writes an
        // element that another reads, which the evaluator checks of every kernel.
        unsafe { self.line.ptr.wrapping_add(col - self.line.cols.skip).read() }
    }

    /// Sixteen elements from `col`.
    #[inline(always)]
    #[expect(unsafe_code, reason = "reads memory that other programs may not write")]
    pub fn lanes(&self, col: usize) -> [T; LANES] {
        if self.line.cols.skip == 0 && col + LANES <= self.line.cols.end {
            // SAFETY: as in `get`, for the sixteen columns from `col`.
            return unsafe {
                self.line.ptr.wrapping_add(col).cast::<[T; LANES]>().read_unaligned()
            };
        }
        if self.line.cols.is_empty() {
            return [T::default(); LANES];
        }
        self.ragged(col)
    }

    #[cold]
    fn ragged(&self, col: usize) -> [T; LANES] {
        std::array::from_fn(|lane| self.get(col + lane))
    }
}

impl<'a, T: Copy> WindowMut<'a, T> {
    /// A row of the window; outside the array what is written is dropped.
    #[inline(always)]
    pub fn row(&self, row: usize) -> RowMut<'a, T> {
        RowMut { line: self.span.row(row), array: PhantomData }
    }
}

impl<T: Copy> RowMut<'_, T> {
    /// Writes one element.
    #[inline(always)]
    #[expect(unsafe_code, reason = "writes memory that other programs may not access")]
    pub fn put(&self, col: usize, value: T) {
        if self.line.cols.contains(col) {
            // SAFETY: the column is inside the array (`Raw::checked`), and no other program
            // accesses an element that this one writes, which the evaluator checks of every
            // kernel.
            unsafe { self.line.ptr.wrapping_add(col - self.line.cols.skip).write(value) }
        }
    }

    /// Writes those of sixteen elements from `col` that are inside the window.
    #[inline(always)]
    #[expect(unsafe_code, reason = "writes memory that other programs may not access")]
    pub fn put_lanes(&self, col: usize, values: [T; LANES]) {
        if self.line.cols.skip == 0 && col + LANES <= self.line.cols.end {
            // SAFETY: as in `put`, for the sixteen columns from `col`.
            unsafe { self.line.ptr.wrapping_add(col).cast::<[T; LANES]>().write_unaligned(values) }
        } else if !self.line.cols.is_empty() {
            self.ragged(col, values);
        }
    }

    #[cold]
    fn ragged(&self, col: usize, values: [T; LANES]) {
        for (lane, value) in values.into_iter().enumerate() {
            self.put(col + lane, value);
        }
    }
}

macro_rules! extents {
    ($name:ident) => {
        impl<T, const R: usize> $name<'_, T, R> {
            /// Extent of each axis.
            pub fn dims(&self) -> [usize; R] {
                self.raw.dims
            }
        }

        impl<'a, T: Copy + Default, const R: usize> $name<'a, T, R> {
            /// The window of `[rows, cols]` that starts at `at`, along the last two axes.
            #[inline(always)]
            pub fn window(&self, at: [i64; R], shape: [usize; 2]) -> Window<'a, T> {
                Window { span: self.raw.window(at, shape), array: PhantomData }
            }

            /// One element.
            #[inline(always)]
            #[expect(unsafe_code, reason = "reads memory that other programs may not write")]
            pub fn get(&self, at: [i64; R]) -> T {
                match self.raw.offset(at) {
                    // SAFETY: the offset is inside the array (`Raw::checked`), and no program
                    // writes an element that another reads, which the evaluator checks.
                    Some(offset) => unsafe { self.raw.ptr.wrapping_add(offset).read() },
                    None => T::default(),
                }
            }
        }
    };
}

extents!(View);
extents!(ViewMut);

impl<'a, T, const R: usize> View<'a, T, R> {
    /// A view of an array without gaps.
    ///
    /// # Panics
    /// If the array is too short.
    pub fn new(data: &'a [T], dims: [usize; R]) -> Self {
        Self::strided(data, dims, contiguous(dims))
    }

    /// A view of an array, strides in elements.
    ///
    /// # Panics
    /// If the array is too short, or the last axis not contiguous.
    pub fn strided(data: &'a [T], dims: [usize; R], strides: [usize; R]) -> Self {
        let raw = Raw::checked(data.as_ptr().cast_mut(), data.len(), dims, strides);
        Self { raw, data }
    }

    /// The view as it is if its first axis ends at `end`.
    #[inline(always)]
    #[must_use]
    pub fn until(&self, end: i64) -> Self {
        Self { raw: self.raw.until(end), data: self.data }
    }

    /// The memory from `at` on, and the distance of rows, if `[rows, cols]` elements from there
    /// are inside the view: what a micro-kernel reads in place.
    #[inline(always)]
    pub fn slab(&self, at: [i64; R], [rows, cols]: [usize; 2]) -> Option<(&'a [T], usize)> {
        let span = self.raw.window(at, [rows, cols]);
        let whole = |range: Range, extent| range.skip == 0 && range.end == extent;
        if !whole(span.rows, rows) || !whole(span.cols, cols) {
            return None;
        }
        let offset = self.raw.offset(at)?;
        Some((&self.data[offset..], span.stride))
    }
}

impl<'a, T, const R: usize> ViewMut<'a, T, R> {
    /// A view of an array without gaps.
    ///
    /// # Panics
    /// If the array is too short.
    pub fn new(data: &'a mut [T], dims: [usize; R]) -> Self {
        Self::strided(data, dims, contiguous(dims))
    }

    /// A view of an array, strides in elements.
    ///
    /// # Panics
    /// If the array is too short, or the last axis not contiguous.
    pub fn strided(data: &'a mut [T], dims: [usize; R], strides: [usize; R]) -> Self {
        let raw = Raw::checked(data.as_mut_ptr(), data.len(), dims, strides);
        Self { raw, data: PhantomData }
    }
}

impl<'a, T: Copy, const R: usize> ViewMut<'a, T, R> {
    /// The window of `[rows, cols]` that starts at `at`, to write to.
    #[inline(always)]
    pub fn window_mut(&self, at: [i64; R], shape: [usize; 2]) -> WindowMut<'a, T> {
        WindowMut { span: self.raw.window(at, shape), array: PhantomData }
    }

    /// Writes one element.
    #[inline(always)]
    #[expect(unsafe_code, reason = "writes memory that other programs may not access")]
    pub fn put(&self, at: [i64; R], value: T) {
        if let Some(offset) = self.raw.offset(at) {
            // SAFETY: the offset is inside the array (`Raw::checked`), and no other program
            // accesses an element that this one writes, which the evaluator checks.
            unsafe { self.raw.ptr.wrapping_add(offset).write(value) }
        }
    }

    /// The view as it is if its first axis ends at `end`.
    #[inline(always)]
    #[must_use]
    pub fn until(&self, end: i64) -> Self {
        Self { raw: self.raw.until(end), data: PhantomData }
    }

    /// Lets `f` write a whole row of a matrix; nothing if there is no such row.
    #[inline(always)]
    #[expect(unsafe_code, reason = "writes memory that other programs may not access")]
    pub(crate) fn with_row(&self, row: i64, f: impl FnOnce(&mut [T])) {
        let mut at = [0; R];
        at[0] = row;
        let cols = self.raw.dims[R - 1];
        if let Some(offset) = self.raw.offset(at) {
            let first = self.raw.ptr.wrapping_add(offset);
            // SAFETY: the row is inside the array (`Raw::checked`: its axis is contiguous), and
            // the one launch that calls this runs one program for each row.
            f(unsafe { std::slice::from_raw_parts_mut(first, cols) });
        }
    }

    /// The same memory in elements of `size` bytes each.
    ///
    /// # Panics
    /// If the array is too short.
    pub(crate) fn regroup<U: crate::exec::Code, const Q: usize>(
        &self,
        size: usize,
        dims: [usize; Q],
        strides: [usize; Q],
    ) -> ViewMut<'_, U, Q>
    where
        T: crate::exec::Code,
    {
        assert!(size_of::<U>() == size && align_of::<U>() == 1 && size_of::<T>() == 1);
        let len = self.raw.dims.iter().product::<usize>() / size;
        let raw = Raw::checked(self.raw.ptr.cast::<U>(), len, dims, strides);
        ViewMut { raw, data: PhantomData }
    }

    /// The address of one element, for atomics.
    #[inline(always)]
    pub(crate) fn place(&self, at: [i64; R]) -> Option<*mut T> {
        self.raw.offset(at).map(|offset| self.raw.ptr.wrapping_add(offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_zero_outside() {
        let data: Vec<f32> = (1u8..=12).map(f32::from).collect();
        let view = View::new(&data, [3, 4]);
        let check = |at: [i64; 2], expect: [[f32; 3]; 2]| {
            let window = view.window(at, [2, 3]);
            for (r, row) in expect.iter().enumerate() {
                assert_eq!(&window.row(r).lanes(0)[..3], row, "{at:?}");
                assert_eq!(window.get(r, 2), row[2], "{at:?}");
            }
        };
        check([0, 0], [[1.0, 2.0, 3.0], [5.0, 6.0, 7.0]]);
        check([2, 2], [[11.0, 12.0, 0.0], [0.0; 3]]);
        check([-1, -2], [[0.0; 3], [0.0, 0.0, 1.0]]);
        check([7, 0], [[0.0; 3]; 2]);
        check([0, i64::MIN], [[0.0; 3]; 2]);
        check([i64::MAX, i64::MAX], [[0.0; 3]; 2]);
        assert!(view.slab([1, 0], [2, 4]).is_some_and(|(m, s)| m[0] == 5.0 && s == 4));
        assert!(view.slab([2, 0], [2, 4]).is_none());
    }

    #[test]
    fn writes_outside_are_dropped() {
        let mut data = vec![0i32; 8];
        let view = ViewMut::new(&mut data, [2, 4]);
        let window = view.window_mut([1, 1], [2, 2]);
        window.row(0).put_lanes(0, [7; LANES]);
        window.row(1).put_lanes(0, [9; LANES]);
        view.put([0, -1], 5);
        view.put([0, 3], 3);
        assert_eq!(data, [0, 0, 0, 3, 0, 7, 7, 0]);
    }

    #[test]
    fn a_view_that_ends_early_is_zero_from_there() {
        let data: Vec<f32> = (1u8..=12).map(f32::from).collect();
        let view = View::new(&data, [3, 4]);
        let column =
            |end: i64| [0, 1, 2].map(|row| view.until(end).window([0, 0], [3, 4]).get(row, 0));
        assert_eq!(column(2), [1.0, 5.0, 0.0]);
        assert_eq!(column(-1), [0.0; 3]);
        assert_eq!(column(i64::MAX), [1.0, 5.0, 9.0]);
        assert!(view.until(2).slab([0, 0], [3, 4]).is_none());
        let mut data = vec![0i32; 6];
        let view = ViewMut::new(&mut data, [6]).until(4);
        view.window_mut([2], [1, 4]).row(0).put_lanes(0, [7; LANES]);
        view.put([5], 1);
        assert_eq!(data, [0, 0, 7, 7, 0, 0]);
    }

    #[test]
    #[should_panic(expected = "into 8 elements")]
    fn a_short_array_is_refused() {
        let _ = View::strided(&[0f32; 8], [2, 4], [5, 1]);
    }
}
