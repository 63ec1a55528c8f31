//! Rotary position embedding, in place.

use crate::launch::{BufferId, RowView};

/// Rotates `num_heads` slices of each row by the row's position.
///
/// Head `h` of a row is the elements `h * head_stride .. + rope_dim`; pair `i` turns by
/// `position * inv_freq[i]` and is scaled by `magnitude`.
///
/// # Shapes
/// - `x`: f32 `[num_tokens, >= (num_heads - 1) * head_stride + rope_dim]`, changed in place
/// - `positions`: i32 `[num_tokens]`
/// - `inv_freq`: f32 `[rope_dim / 2]`
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Rope {
    pub x: RowView,
    pub num_heads: usize,
    pub head_stride: usize,
    pub rope_dim: usize,
    pub positions: BufferId,
    pub inv_freq: BufferId,
    /// Factor on sine and cosine.
    pub magnitude: f32,
    /// Pairs are `(2i, 2i + 1)` if set, `(i, i + rope_dim / 2)` if not.
    pub interleaved: bool,
}
