//! Scratch memory of a thread: typed, aligned to cache lines, allocated once and grown at need.

/// Elements of each type that a program needs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the element; `u8` holds truths and codes")]
pub struct Sizes {
    pub f32: usize,
    pub i32: usize,
    pub i64: usize,
    pub u64: usize,
    pub u8: usize,
}

/// Memory for the tiles of one program. What a program finds in it means nothing.
#[derive(Debug, Default)]
#[expect(missing_docs, reason = "named after the element; `u8` holds truths and codes")]
pub struct Scratch {
    pub f32: Aligned<f32>,
    pub i32: Aligned<i32>,
    pub i64: Aligned<i64>,
    pub u64: Aligned<u64>,
    pub u8: Aligned<u8>,
}

/// A vector whose elements start on a cache line.
#[derive(Debug, Default)]
pub struct Aligned<T> {
    memory: Vec<T>,
    skip: usize,
}

const LINE: usize = 64;

impl<T: Copy + Default> Aligned<T> {
    fn fit(&mut self, len: usize) {
        if len > self.memory.len().saturating_sub(LINE) {
            self.memory = vec![T::default(); len + LINE];
            self.skip = self.memory.as_ptr().align_offset(LINE).min(LINE);
        }
    }

    /// The elements.
    #[inline(always)]
    pub fn as_mut(&mut self) -> &mut [T] {
        self.memory.get_mut(self.skip..).unwrap_or_default()
    }
}

impl Scratch {
    /// Makes room for a program's tiles.
    pub fn fit(&mut self, sizes: Sizes) {
        self.f32.fit(sizes.f32);
        self.i32.fit(sizes.i32);
        self.i64.fit(sizes.i64);
        self.u64.fit(sizes.u64);
        self.u8.fit(sizes.u8);
    }
}

/// Cuts memory into tiles of these lengths.
///
/// # Panics
/// If there is too little memory.
#[inline(always)]
pub fn carve<T, const N: usize>(memory: &mut [T], lens: [usize; N]) -> [&mut [T]; N] {
    let mut rest = memory;
    lens.map(|len| {
        let (tile, after) = std::mem::take(&mut rest).split_at_mut(len);
        rest = after;
        tile
    })
}
