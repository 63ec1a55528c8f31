//! Rotary position embedding, in place, and the frequencies it turns by.

use super::RowsMut;
use super::check::Check;
use crate::launch::{BufferId, BufferType, DeviceShapes, PlanError, RowView};

/// Rotates `num_heads` slices of each row by the row's position.
///
/// Head `h` of a row is the elements `h * head_stride .. + rope_dim`; pair `i` turns by
/// `position * inv_freq[i]` and is scaled by `magnitude`.
///
/// # Shapes
/// - `x`: f32 `[num_tokens, >= (num_heads - 1) * head_stride + rope_dim]`, changed in place
#[derive(Debug, Clone, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Rope {
    pub x: RowView,
    pub num_heads: usize,
    pub head_stride: usize,
    pub rope_dim: usize,
    pub rotation: Rotation,
}

/// How the rows of a step rotate.
///
/// # Shapes
/// - `positions`: i32 `[num_tokens]`; `inv_freq`: f32 `[rope_dim / 2]`
#[derive(Debug, Clone, Copy, PartialEq)]
#[expect(missing_docs, reason = "see Shapes")]
pub struct Rotation {
    pub positions: BufferId,
    pub inv_freq: BufferId,
    /// Factor on sine and cosine.
    pub magnitude: f32,
    /// Pairs are `(2i, 2i + 1)` if set, `(i, i + rope_dim / 2)` if not.
    pub interleaved: bool,
}

impl Rotation {
    pub(super) fn check(
        &self,
        check: &Check<'_>,
        rope_dim: usize,
        tokens: usize,
    ) -> Result<(), PlanError> {
        check.ensure(rope_dim.is_multiple_of(2), "rope_dim", rope_dim, "an even size")?;
        check.array("positions", self.positions, BufferType::I32, tokens)?;
        check.array("inv_freq", self.inv_freq, BufferType::F32, rope_dim / 2)
    }

    /// Sine and cosine of each pair at a position. The angle is an f32 product, as in the models'
    /// own implementations; sine and cosine are f32.
    pub(super) fn turns(&self, position: i32, inv_freq: &[f32], pairs: usize) -> Vec<(f32, f32)> {
        let turn = |freq: &f32| {
            #[expect(clippy::cast_precision_loss, reason = "positions are below 2^24")]
            let (sin, cos) = (position as f32 * freq).sin_cos();
            (sin * self.magnitude, cos * self.magnitude)
        };
        inv_freq[..pairs].iter().map(turn).collect()
    }

    pub(super) fn turn(&self, turns: &[(f32, f32)], head: &mut [f32]) {
        let half = turns.len();
        for (i, (sin, cos)) in turns.iter().enumerate() {
            let (a, b) = if self.interleaved { (2 * i, 2 * i + 1) } else { (i, i + half) };
            let (x, y) = (head[a], head[b]);
            head[a] = x * cos - y * sin;
            head[b] = y * cos + x * sin;
        }
    }
}

impl Rope {
    /// Whether the shapes fit.
    ///
    /// # Errors
    /// [`PlanError`] if they do not, or heads overlap, or `rope_dim` is odd.
    pub fn check(&self, shapes: &DeviceShapes) -> Result<(), PlanError> {
        let check = Check { op: "rope", shapes };
        check.view("x", &self.x, [self.x.rows, self.x.cols])?;
        check.ensure(self.num_heads > 0, "num_heads", self.num_heads, "at least 1")?;
        let apart = self.num_heads == 1 || self.head_stride >= self.rope_dim;
        check.ensure(apart, "head_stride", self.head_stride, "at least `rope_dim`")?;
        let last = (self.num_heads - 1).checked_mul(self.head_stride);
        let width = last.and_then(|last| last.checked_add(self.rope_dim)).unwrap_or(usize::MAX);
        if self.x.cols < width {
            return Err(check.shape("x", &[self.x.rows, self.x.cols], &[self.x.rows, width]));
        }
        self.rotation.check(&check, self.rope_dim, self.x.rows)
    }

    /// Rotates `x`.
    pub fn reference(&self, x: RowsMut<'_>, positions: &[i32], inv_freq: &[f32]) {
        x.for_each(self.num_heads * self.rope_dim * 4, |t, row| {
            let turns = self.rotation.turns(positions[t], inv_freq, self.rope_dim / 2);
            for head in 0..self.num_heads {
                self.rotation.turn(&turns, &mut row[head * self.head_stride..][..self.rope_dim]);
            }
        });
    }
}

/// What a config says of rotary embedding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RopeParameters {
    /// Elements that rotate; even.
    pub dim: usize,
    /// Base of the frequencies.
    pub theta: f64,
    /// YaRN scaling, if any.
    pub yarn: Option<YarnParameters>,
}

/// YaRN context extension (arXiv 2309.00071).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct YarnParameters {
    /// How many times longer than trained.
    pub factor: f64,
    /// Context length trained with.
    pub original_max_position_embeddings: usize,
    /// Turns over the trained context above which a pair keeps its frequency.
    pub beta_fast: f64,
    /// Turns below which a pair is slowed by the whole factor.
    pub beta_slow: f64,
    /// With `mscale_all_dim`, sets the magnitude; 0 for "not given".
    pub mscale: f64,
    /// See `mscale`; 0 for "not given".
    pub mscale_all_dim: f64,
}

/// Frequencies and magnitude of a rotary embedding.
#[derive(Debug, Clone, PartialEq)]
pub struct RopeTable {
    /// Radians a position turns each pair by, `[dim / 2]`.
    pub inv_freq: Vec<f32>,
    /// Factor on sine and cosine.
    pub magnitude: f32,
}

impl RopeTable {
    /// Frequencies as `transformers` computes them (`_compute_yarn_parameters`, truncating).
    #[expect(clippy::cast_possible_truncation, reason = "rounded to f32 once, at the end")]
    pub fn new(parameters: &RopeParameters) -> Self {
        let RopeParameters { dim, theta, yarn } = *parameters;
        let pos_freqs = (0..dim / 2).map(|i| theta.powf((2 * i) as f64 / dim as f64) as f32);
        let Some(yarn) = yarn else {
            return Self { inv_freq: pos_freqs.map(|freq| 1.0 / freq).collect(), magnitude: 1.0 };
        };
        let (low, high) = yarn.correction_range(dim, theta);
        let inv_freq = pos_freqs.enumerate().map(|(i, freq)| {
            let ramp = ((i as f32 - low as f32) / (high - low) as f32).clamp(0.0, 1.0);
            let keep = 1.0 - ramp;
            let (fast, slow) = (1.0 / freq, 1.0 / (yarn.factor as f32 * freq));
            slow * (1.0 - keep) + fast * keep
        });
        Self { inv_freq: inv_freq.collect(), magnitude: yarn.magnitude() as f32 }
    }
}

impl YarnParameters {
    /// First and last pair of the ramp between kept and slowed frequencies.
    fn correction_range(&self, dim: usize, theta: f64) -> (f64, f64) {
        let (dim, length) = (dim as f64, self.original_max_position_embeddings as f64);
        let pair = |turns: f64| {
            dim * (length / (turns * 2.0 * std::f64::consts::PI)).ln() / (2.0 * theta.ln())
        };
        let low = pair(self.beta_fast).floor().max(0.0);
        let high = pair(self.beta_slow).ceil().min(dim - 1.0);
        // A ramp of no width would divide by zero.
        if low == high { (low, high + 0.001) } else { (low, high) }
    }

    /// `mscale(factor, mscale) / mscale(factor, mscale_all_dim)` if both are given, else
    /// `mscale(factor, 1)`, where `mscale(s, m) = 0.1 m ln(s) + 1` above a factor of 1.
    fn magnitude(&self) -> f64 {
        let mscale = |m: f64| {
            if self.factor <= 1.0 { 1.0 } else { 0.1 * m * self.factor.ln() + 1.0 }
        };
        if self.mscale != 0.0 && self.mscale_all_dim != 0.0 {
            mscale(self.mscale) / mscale(self.mscale_all_dim)
        } else {
            mscale(1.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::launch::BufferId;

    /// Constants from numpy, by the formulas of transformers' `_compute_yarn_parameters`.
    fn check(theta: f64, yarn: YarnParameters, want: &[(usize, f32)]) {
        let table = RopeTable::new(&RopeParameters { dim: 64, theta, yarn: Some(yarn) });
        for &(pair, want) in want {
            let got = table.inv_freq[pair];
            assert!((got - want).abs() <= want * 5e-7, "pair {pair}: {got} for {want}");
        }
    }

    fn yarn(factor: f64, beta_fast: f64) -> YarnParameters {
        YarnParameters {
            factor,
            original_max_position_embeddings: 4096,
            beta_fast,
            beta_slow: 1.0,
            mscale: 1.0,
            mscale_all_dim: 1.0,
        }
    }

    #[test]
    fn yarn_frequencies() {
        let want = [
            (0, 1.0),
            (8, 0.066_874_03),
            (12, 0.011_619_16),
            (16, 0.001_537_296_7),
            (19, 0.000_158_374_97),
            (20, 1.807_023_4e-5),
            (31, 4.382_207e-7),
        ];
        check(50000.0, yarn(64.0, 32.0), &want);
        check(10000.0, yarn(40.0, 32.0), &[(12, 0.026_879_36), (19, 0.001_370_513_5)]);
    }

    #[test]
    fn yarn_ramp_of_equal_betas() {
        let want = [(19, 0.001_621_76), (20, 3.614_046_7e-5), (24, 9.345_93e-6)];
        check(50000.0, yarn(32.0, 1.0), &want);
    }

    #[test]
    fn yarn_magnitude() {
        let magnitude = |mscale, mscale_all_dim| {
            YarnParameters { mscale, mscale_all_dim, ..yarn(40.0, 32.0) }.magnitude()
        };
        assert_eq!(magnitude(1.0, 1.0), 1.0);
        assert!((magnitude(0.0, 0.0) - 1.368_887_945_4).abs() < 1e-9);
        assert!((magnitude(1.0, 0.5) - 1.368_887_945_4 / 1.184_443_972_7).abs() < 1e-9);
    }

    #[test]
    fn rotation_by_a_quarter_turn() {
        let view = RowView::contiguous(BufferId(0), 1, 4);
        let op = |interleaved| Rope {
            x: view,
            num_heads: 1,
            head_stride: 4,
            rope_dim: 4,
            rotation: Rotation {
                positions: BufferId(1),
                inv_freq: BufferId(2),
                magnitude: 2.0,
                interleaved,
            },
        };
        for (interleaved, want) in [(true, [-4.0, 2.0, 6.0, 8.0]), (false, [-6.0, 4.0, 2.0, 8.0])] {
            let mut x = [1.0, 2.0, 3.0, 4.0];
            let rows = RowsMut::contiguous(&mut x, 4);
            op(interleaved).reference(rows, &[1], &[std::f32::consts::FRAC_PI_2, 0.0]);
            for (got, want) in x.iter().zip(want) {
                assert!((got - want).abs() < 1e-5, "{x:?}");
            }
        }
    }
}
