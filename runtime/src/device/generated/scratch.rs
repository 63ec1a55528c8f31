//! Memory for what kernels pass to each other within a launch. It grows to the largest launch seen
//! and stays.

use tessera_kernel_artifacts::lanes::ViewMut;

/// Intermediate results, by what they hold.
#[derive(Debug, Default)]
pub(in crate::device) struct Scratch {
    /// Attention over parts of the tokens: outputs and log-sum-exps, to be merged.
    pub(super) parts: Array<f32>,
    pub(super) part_lse: Array<f32>,
    /// Log-sum-exps of a prefill step, `[heads, tokens]`.
    pub(super) lse: Array<f32>,
    /// Decoded cache entries of a run of tokens, and where they are damaged.
    pub(super) entries: Array<f32>,
    pub(super) damage: Array<f32>,
    /// Keys and values expanded from them.
    pub(super) expanded: Array<f32>,
    /// Which row of the sorted choices each choice has.
    pub(super) row_of: Array<i32>,
    /// A page's codes as words.
    pub(super) words: Array<u64>,
    /// Likeliest token of each row of logits, and log of the sum of exponentials.
    pub(super) argmax: Array<i32>,
    pub(super) log_sum: Array<f32>,
}

/// An array that never shrinks.
#[derive(Debug, Default)]
pub(super) struct Array<T>(Vec<T>);

impl<T: Copy + Default> Array<T> {
    /// The first `len` elements, whatever they hold.
    pub(super) fn take(&mut self, len: usize) -> &mut [T] {
        if self.0.len() < len {
            self.0.resize(len, T::default());
        }
        &mut self.0[..len]
    }

    /// A view to write.
    pub(super) fn view<const R: usize>(&mut self, dims: [usize; R]) -> ViewMut<'_, T, R> {
        ViewMut::new(self.take(dims.iter().product()), dims)
    }

    /// The first `len` elements as they were left.
    pub(super) fn left(&self, len: usize) -> &[T] {
        &self.0[..len]
    }
}
